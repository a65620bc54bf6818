"""Prints an explanation: as tables that fit the terminal, or as long lines if the output is no terminal.

Without a terminal nothing is wrapped or coloured, so that `grep` and `awk` find whole lines.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parley.api.reasons import NO_CANDIDATES
from parley.api.wording import counted, listed, printable
from parley.explain.matrix import DOES_NOT_FIT, NOT_VIABLE, SELECTED, UNKNOWN, VIABLE, grouped
from parley.explain.model import Cell, ClaimDetails, Explanation, NodeRow, PodFinding, readable
from parley.explain.times import ago

NARROW = 80
"""The terminal width, in columns, below which the table of nodes and claims is printed as a list."""

_UNLIMITED = 100_000
_NAMES = 3
_ROWS = 20
_STYLES = {SELECTED: "green", VIABLE: "green", NOT_VIABLE: "yellow", DOES_NOT_FIT: "dim", UNKNOWN: "cyan"}


def console(width: int | None = None, **options: Any) -> Console:
    """A console for stdout, unless `options` say otherwise; of unlimited width if that is no terminal. Brackets
    and colons in texts are printed as they are."""
    options |= {"highlight": False, "markup": False, "emoji": False}
    made = Console(width=width, **options)
    return made if made.is_terminal or width is not None else Console(width=_UNLIMITED, **options)


def table(headings: Sequence[str], rows: Sequence[Sequence[RenderableType]]) -> Table:
    """Columns without lines between them, as kubectl prints them."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[str]], *, headed: bool) -> None:
    """Print a table on stdout, with its headings if `headed`."""
    made = table(headings, [[Text(printable(cell)) for cell in row] for row in rows])
    made.show_header = headed
    print_plain(console(), made)


def show(out: Console, explanation: Explanation, *, every_node: bool = False) -> None:
    """Print the explanation. Nodes with equal rows share one row, unless `every_node`."""
    explanation = readable(explanation)
    for part in _parts(explanation, narrow=out.width < NARROW, rows=_rows(explanation, every_node=every_node)):
        print_plain(out, part)


def print_plain(out: Console, part: RenderableType) -> None:
    """Print without the trailing blanks of table rows."""
    with out.capture() as captured:
        out.print(part)
    text = Text.from_ansi(captured.get())
    out.print(Text("\n").join(_stripped(line) for line in text.split("\n")), soft_wrap=True)


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line


_Rows = Sequence[tuple[Sequence[str], NodeRow]]
"""Rows, each with the names of the nodes that it is about."""


def _rows(explanation: Explanation, *, every_node: bool) -> tuple[_Rows, int]:
    """The rows that are shown, and how many nodes are not among them."""
    if every_node:
        return [([row.node], row) for row in explanation.nodes], 0
    groups = list(grouped(explanation.nodes))
    return groups[:_ROWS], sum(len(names) for names, _ in groups[_ROWS:])


def _parts(explanation: Explanation, *, narrow: bool, rows: tuple[_Rows, int]) -> Iterator[RenderableType]:
    yield headline(explanation)
    if explanation.message:
        yield Padding(Text(explanation.message), (0, 0, 0, 2))
    yield Text()
    yield _claims(explanation, narrow=narrow)
    known = any(cell.viable is not None for row in explanation.nodes for cell in row.claims)
    if known or (explanation.nodes and explanation.code == NO_CANDIDATES):
        yield Text()
        yield rounds(explanation)
        yield _matrix_as_list(*rows) if narrow else _matrix(explanation, *rows)
    yield from _section("What would help", [remedy.text for remedy in explanation.remedies])
    yield from _section("Waiting longer for the same classes", _shortened(explanation.ahead))
    yield from _section("Reports", [_report(finding, explanation.now) for finding in explanation.findings])
    yield from _section("Not read", explanation.unread)


def headline(explanation: Explanation) -> Text:
    """The pod's state, since when, and the code of why it waits."""
    text = Text()
    text.append(f"Pod {explanation.title}", style="bold")
    since = ago(explanation.since, explanation.now)
    if explanation.state == "waits":
        text.append(f" has been waiting for {since}" if since else " is waiting", style="yellow")
        text.append(f": {explanation.code}" if explanation.code else "")
    elif explanation.state == "bound":
        bound = (
            f" has been bound to {explanation.node} for {since}" if since else f" is bound to {explanation.node}"
        )
        text.append(bound, style="green")
        text.append(f", {explanation.phase.lower()}" if explanation.phase else "")
        text.append(f": {explanation.code}" if explanation.code else "")
    elif explanation.state == "ended":
        text.append(
            f" has ended ({explanation.phase.lower()})" + (f" on {explanation.node}" if explanation.node else "")
        )
    elif explanation.state == "gated":
        text.append(" has scheduling gates: its claims are not negotiated until they are removed")
    else:
        text.append(" is being deleted")
    return text


def _claims(explanation: Explanation, *, narrow: bool) -> RenderableType:
    if narrow:
        lines = [
            Text(f"{c.entry}: class {c.class_name}, {claim_state(c, explanation)}") for c in explanation.claims
        ]
        return Group(Text("Claims", style="bold"), *(Padding(line, (0, 0, 0, 2)) for line in lines))
    rows = [
        (c.entry, c.source, c.class_name or "-", c.driver or "-", claim_state(c, explanation))
        for c in explanation.claims
    ]
    return table(("CLAIM", "FROM", "CLASS", "DRIVER", "STATE"), rows)


def claim_state(claim: ClaimDetails, explanation: Explanation) -> str:
    """A claim's state: what it holds and since when, or its problem."""
    if claim.state == "allocated":
        since = ago(claim.since, explanation.now)
        what = f": {', '.join(claim.holds)}" if claim.holds else ""
        return f"{claim.message or 'allocated'}{what}{f', for {since}' if since else ''}"
    return f"{claim.state}: {claim.message}" if claim.message not in ("", explanation.message) else claim.state


def rounds(explanation: Explanation) -> Text:
    """The heading of the table of nodes: how many there are, and how many were candidates in the last round."""
    if explanation.state == "waits":
        asked = "no driver has been asked yet" if explanation.recorded else "the last round could not be read"
        if explanation.round:
            asked = f"round {explanation.round}: {counted(explanation.candidates, 'candidate')}"
        return Text(f"Nodes ({len(explanation.nodes)}; {asked})", style="bold")
    count = counted(explanation.round, "round")
    return Text(
        f"Nodes ({count}; {counted(explanation.candidates, 'candidate')}, {explanation.viable} viable)",
        style="bold",
    )


def _matrix(explanation: Explanation, groups: _Rows, left: int) -> Table:
    fits = any(row.fit for row in explanation.nodes) or explanation.state == "waits"
    entries = [cell.claim for cell in explanation.nodes[0].claims]
    rows = [
        [
            Text(_names(names), style=_STYLES[row.verdict]),
            *([row.fit or "fits"] if fits else ()),
            *(_answer(cell) for cell in row.claims),
            _mark(row),
        ]
        for names, row in groups
    ]
    if left:
        rows.append([f"and {counted(left, 'more node')} (-o wide has all)"])
    headings = ["NODE", *(["SCHEDULER"] if fits else ()), *entries, ""]
    return table(headings, rows)


def _matrix_as_list(groups: _Rows, left: int) -> Group:
    lines: list[RenderableType] = []
    for names, row in groups:
        answers = [row.fit] if row.fit else [f"{cell.claim}: {_answer(cell)}" for cell in row.claims]
        mark = f" ({_mark(row)})" if _mark(row) else ""
        lines.append(Padding(Text(_names(names) + mark, style=_STYLES[row.verdict]), (0, 0, 0, 2)))
        lines += [Padding(Text(text), (0, 0, 0, 4)) for text in answers]
    if left:
        lines.append(Text(f"  and {counted(left, 'more node')} (-o wide has all)"))
    return Group(*lines)


def _answer(cell: Cell) -> str:
    if cell.viable:
        return cell.why or "viable"
    return cell.why or "-"


def _mark(row: NodeRow) -> str:
    return "selected" if row.verdict == SELECTED else ""


def _names(names: Sequence[str]) -> str:
    return listed(names, _NAMES)


def _shortened(names: Sequence[str]) -> list[str]:
    return [_names(names)] if names else []


def _report(finding: PodFinding, now: str) -> str:
    since = ago(finding.at, now)
    if not finding.code:
        return f"{finding.by} {finding.text}"
    return f"{finding.by}{f', {since} ago' if since else ''}: {finding.code}: {finding.text}"


def _section(title: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        yield Text(f"\n{title}", style="bold")
        for line in lines:
            entry = Table.grid(padding=(0, 1))
            entry.add_row(" -", Text(line))
            yield entry
