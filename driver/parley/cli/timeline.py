"""The output of a recorded negotiation on a terminal. Without colour it is the same text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat

from rich.text import Text

from parley.api.models import ClaimScheduling, PodScheduling
from parley.api.wording import counted, printable, printable_lines
from parley.simulate.outcome import ClaimOutcome, SimulationOutcome
from parley.simulate.recording import PodRecord

_LABEL = 12
_REASONS_SHOWN = 8
_NODES_SHOWN = 8


def story(record: PodRecord) -> Text:
    """The record of one pod: its negotiation, then the steps in order of time."""
    text = Text()
    text.append(f"{record.namespace}/{record.name}", style="bold")
    text.append(_verdict(record), style="green" if record.runs else "yellow")
    text.append("\n")
    negotiation = list(_negotiation(record))
    width = max([len(label) for label, _ in negotiation] + [_LABEL])
    for label, content in negotiation:
        text.append(f"  {label:<{width}}  ", style="cyan")
        text.append(f"{printable_lines(content)}\n")
    for step in record.steps:
        text.append(f"  {f'+{step.at:.1f} s':<{width}}  ", style="dim")
        text.append(f"{printable_lines(step.text)}\n")
    return text


def _verdict(record: PodRecord) -> str:
    if record.node:
        return f" is bound to {record.node}{'' if record.runs else ', and waits there'}"
    return " is gone" if record.gone else " waits"


def _negotiation(record: PodRecord) -> Iterator[tuple[str, str]]:
    scheduling = record.round
    if scheduling is None:
        return
    candidates = scheduling.spec.candidate_nodes
    yield "candidates", ", ".join(candidates)
    for claim in scheduling.status.claims:
        yield from _answer(claim)
    if record.node:
        yield "selected", record.node
        if better := _viable(scheduling, other_than=record.node):
            yield "", f"viable too, but less preferred: {', '.join(better)}"
    yield from _left_out(record.left_out)


def _left_out(nodes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A line for each reason, with the first nodes that have it."""
    by_reason = defaultdict[str, list[str]](list)
    for node, reason in nodes.items():
        by_reason[reason].append(node)
    labels = chain(["not asked"], repeat(""))
    for label, (reason, names) in zip(labels, islice(by_reason.items(), _REASONS_SHOWN), strict=False):
        more = f" and {counted(len(names) - _NODES_SHOWN, 'more node')}" if len(names) > _NODES_SHOWN else ""
        yield label, f"{', '.join(names[:_NODES_SHOWN])}{more}: {reason}"
    if len(by_reason) > _REASONS_SHOWN:
        yield "", f"and others, for {len(by_reason) - _REASONS_SHOWN} more reasons"


def _answer(claim: ClaimScheduling) -> Iterator[tuple[str, str]]:
    if not claim.says_anything:
        yield f"claim {claim.name}", f"{claim.driver_name}: not asked, as the claim was allocated before"
        return
    viable = ", ".join(claim.viable_nodes) or "no node"
    yield f"claim {claim.name}", f"{claim.driver_name}: viable on {viable}"
    reasons = claim.reason.split("; ") if claim.reason else []
    for reason in reasons[:_REASONS_SHOWN]:
        yield "", f"not on {reason}"
    if len(reasons) > _REASONS_SHOWN:
        yield "", f"and {len(reasons) - _REASONS_SHOWN} more nodes"


def _viable(scheduling: PodScheduling, *, other_than: str) -> list[str]:
    answers = [set(claim.viable_nodes) for claim in scheduling.status.claims if claim.says_anything]
    return [
        node
        for node in scheduling.spec.candidate_nodes
        if node != other_than and all(node in viable for viable in answers)
    ]


def summary(outcome: SimulationOutcome) -> Text:
    """One line for each pod: where it is and with what, or the code for why it waits. Then one for each claim
    that no pod names: where it is allocated and with what, or why not."""
    text = _pods(outcome.pods)
    if outcome.unnamed:
        text.append("\n\n")
        text.append(_claims(outcome.unnamed))
    return text


def _pods(records: Sequence[PodRecord]) -> Text:
    bound, gone = sum(1 for record in records if record.runs), sum(1 for record in records if record.gone)
    found = f"{bound} bound, {len(records) - bound - gone} waiting{f', {gone} gone' if gone else ''}"
    text = Text(f"{counted(len(records), 'pod')}: {found}\n", style="bold")
    width = max((len(f"{r.namespace}/{r.name}") for r in records), default=0)
    place = max((len(r.node) for r in records), default=0)
    for record in records:
        title = f"{record.namespace}/{record.name}"
        text.append(f"  {title:<{width}}  {record.node or '-':<{place}}  {printable(_in_short(record))}\n")
    text.rstrip()
    return text


def _in_short(record: PodRecord) -> str:
    if not record.runs:
        return record.reason.partition(":")[0] or "waits"
    return "; ".join(": ".join(filter(None, (c.entry, ", ".join(c.devices)))) for c in record.claims.values())


def _claims(claims: Sequence[ClaimOutcome]) -> Text:
    allocated = sum(1 for claim in claims if claim.whereabouts)
    title = f"{counted(len(claims), 'claim')} that no pod names"
    text = Text(f"{title}: {allocated} allocated, {len(claims) - allocated} waiting\n", style="bold")
    width = max(len(f"{claim.namespace}/{claim.name}") for claim in claims)
    for claim in claims:
        text.append(f"  {f'{claim.namespace}/{claim.name}':<{width}}  {_claim(claim)}\n")
    text.rstrip()
    return text


def _claim(claim: ClaimOutcome) -> str:
    allocated = ": ".join(filter(None, (claim.whereabouts, ", ".join(claim.devices))))
    return printable("; ".join(filter(None, (allocated, claim.reason))) or "waits")
