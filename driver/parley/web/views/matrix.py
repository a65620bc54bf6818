"""The table of a pod's claims by nodes, in pages: nodes with equal answers share a row, or each has its own."""

from collections import Counter
from collections.abc import Sequence

from parley.explain.matrix import ORDER, grouped
from parley.explain.model import Cell, Explanation, NodeRow
from parley.explain.text import rounds
from parley.web.links import Links
from parley.web.markup import Element, Node, h
from parley.web.views.parts import few, link, mark, paged, pager, section, short, state, table

GROUPS = 50
NODES = 100
"""So many rows are on a page."""

LABELS = {
    "selected": "selected",
    "viable": "viable",
    "unknown": "not known",
    "notViable": "not viable",
    "doesNotFit": "does not fit",
}

_Group = tuple[Sequence[str], NodeRow]


def matrix(explanation: Explanation, links: Links) -> Element | None:
    """The section of the table; None for a pod about which no driver was asked."""
    if not explanation.nodes:
        return None
    each = links.here.query.get("nodes") == "each"
    alike: list[_Group] = list(grouped(explanation.nodes))
    groups: list[_Group] = [((row.node,), row) for row in explanation.nodes] if each else alike
    size = NODES if each else GROUPS
    page, pages = paged(len(groups), links.here.page, size)
    rows = [_row(names, row, links, explanation) for names, row in groups[(page - 1) * size : page * size]]
    other = _other(links, each=each) if len(alike) < len(explanation.nodes) else None
    return section(
        "nodes",
        rounds(explanation).plain,
        h("p", _counts(explanation.nodes), " ", other, class_="counts"),
        table(_headings(explanation), rows, "Claims by nodes"),
        pager(links, page, pages, "nodes"),
    )


def _other(links: Links, *, each: bool) -> Element:
    """The link to the same table in the other arrangement."""
    text, nodes = ("Nodes alike in one row", "") if each else ("Every node in its own row", "each")
    return link(text, links.changed(nodes=nodes, page=""))


def _counts(nodes: Sequence[NodeRow]) -> Node:
    counted = Counter(row.verdict for row in nodes)
    return [
        h("span", mark(verdict, f"{counted[verdict]} {LABELS[verdict]}"), " ")
        for verdict in ORDER
        if counted[verdict]
    ]


def _headings(explanation: Explanation) -> list[str]:
    scheduler = ["Scheduler"] if explanation.state == "waits" else []
    claims = [f"Claim {cell.claim}" for cell in explanation.nodes[0].claims]
    return ["Nodes", "Verdict", "Asked", *scheduler, *claims]


def _row(names: Sequence[str], row: NodeRow, links: Links, explanation: Explanation) -> list[Node]:
    count = h("span", f" ({len(names)} nodes)", class_="count") if len(names) > 1 else None
    fit: list[Node] = []
    if explanation.state == "waits":
        fit = [mark("doesNotFit", short(row.fit)) if row.fit else mark("viable", "fits")]
    return [
        [few(names, links.node), count],
        state(row.verdict, LABELS[row.verdict]),
        "yes" if row.asked else "no",
        *fit,
        *(_cell(cell) for cell in row.claims),
    ]


def _cell(cell: Cell) -> Element:
    verdict = "unknown" if cell.viable is None else "viable" if cell.viable else "notViable"
    return mark(verdict, short(cell.why or LABELS[verdict]))
