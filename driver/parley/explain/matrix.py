"""The table of one pod's claims by nodes: where each claim is viable, and why not elsewhere. No I/O.

For a waiting pod, drivers that come with Parley are evaluated as of now, on every node; standalone drivers have
only their answers about the last candidates. For a bound pod the table is what was recorded when it was bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.kept import KEPT
from parley.explain.claims import code_of
from parley.explain.feasibility import PodFeasibility
from parley.explain.model import Cell, NodeRow
from parley.explain.snapshot import Snapshot
from parley.negotiation.answers import Answer, without
from parley.negotiation.nowhere import where
from parley.scheduler.entries import answer_of

SELECTED, VIABLE, NOT_VIABLE, DOES_NOT_FIT, UNKNOWN = "selected", "viable", "notViable", "doesNotFit", "unknown"
ORDER = (SELECTED, VIABLE, UNKNOWN, NOT_VIABLE, DOES_NOT_FIT)
"""The verdicts, best first."""


def recorded(pod: Pod, scheduling: PodScheduling | None) -> tuple[NodeRow, ...]:
    """The rows of the last round's candidate nodes, with the recorded answers."""
    if scheduling is None:
        return ()
    reported, asked = answered(scheduling), {claim.name for claim in scheduling.spec.claims}
    silent = {one.name for one in scheduling.status.claims if not one.says_anything and one.name not in asked}
    rows = []
    for node in scheduling.spec.candidate_nodes:
        cells = tuple(
            Cell(entry, None, "not asked") if entry in silent else _cell(entry, node, answer)
            for entry, answer in reported.items()
        )
        verdict = SELECTED if node == pod.spec.node_name else _verdict(cells, "")
        rows.append(NodeRow(node, verdict, "", asked=True, claims=cells))
    return _sorted(rows)


def present(
    snapshot: Snapshot, feasibility: PodFeasibility, scheduling: PodScheduling | None
) -> tuple[NodeRow, ...]:
    """The rows of all nodes, evaluated now."""
    names = [node.metadata.name for node in snapshot.nodes]
    misfits, reported = feasibility.misfits(names), answered(scheduling)
    found = dict(feasibility.answers(names))
    for asked in scheduling.spec.claims if scheduling is not None else ():
        found.pop(asked.name, None)  # the controller asks that driver through the API, and goes by its answer
    round_ = _Round(reported)
    if scheduling is not None:
        entries = frozenset(claim.name for claim in scheduling.spec.claims)
        round_ = _Round(reported, entries, frozenset(scheduling.spec.candidate_nodes))
    selected = scheduling.spec.selected_node if scheduling is not None else ""
    answers = without(found, dict.fromkeys(kept_for_others(reported), KEPT))
    viable = {entry: frozenset(answer.viable) for entry, answer in answers.items()}
    rows = []
    for node in names:
        cells = tuple(
            _present(claim, node, answers.get(claim.entry), viable.get(claim.entry, frozenset()), round_)
            for claim in feasibility.claims
        )
        verdict = SELECTED if node == selected else _verdict(cells, misfits.get(node, ""))
        rows.append(NodeRow(node, verdict, misfits.get(node, ""), node in round_.candidates, cells))
    return _sorted(rows)


def _sorted(rows: Sequence[NodeRow]) -> tuple[NodeRow, ...]:
    return tuple(sorted(rows, key=lambda row: (ORDER.index(row.verdict), not row.asked)))


ReportedAnswers = Mapping[str, Answer]
"""Recorded answers about the last candidates, by claim entry."""


@dataclass(frozen=True, slots=True)
class _Round:
    """The last round: the answers so far, the claim entries that drivers were asked about, and the candidates."""

    answers: ReportedAnswers
    claims: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()


def answered(scheduling: PodScheduling | None) -> ReportedAnswers:
    """The recorded answers to the last question, of the drivers that were asked: the class of a claim may have had
    another driver before."""
    if scheduling is None:
        return {}
    spec = scheduling.spec
    asked = {claim.name: claim.driver_name for claim in spec.claims}
    return {
        answer.name: answer_of(answer, spec.candidate_nodes, {})
        for answer in scheduling.status.claims
        if answer.round == spec.round and answer.driver_name == asked.get(answer.name, answer.driver_name)
    }


def kept_for_others(reported: ReportedAnswers) -> frozenset[str]:
    """The nodes where free capacity is kept for a pod that others were evicted for. Only the controller knows
    that; it is among the reasons that it recorded."""
    return frozenset(node for answer in reported.values() for node, why in answer.reasons.items() if why == KEPT)


def _cell(entry: str, node: str, answer: Answer) -> Cell:
    """The answer about a candidate; of a driver that could not answer, the code of why."""
    if answer.failure is not None:
        return Cell(entry, None, answer.failure.code)
    return Cell(entry, node not in answer.reasons, answer.reasons.get(node, ""))


def _present(claim: PodClaim, node: str, answer: Answer | None, viable: frozenset[str], round_: _Round) -> Cell:
    if claim.problem is not None:
        return Cell(claim.entry, None, code_of(claim.problem))
    if claim.holding is not None:
        here = claim.holding.usable_on(node)
        return Cell(claim.entry, here, "allocated" if here else where(claim.holding.nodes))
    if answer is not None:
        here = node in viable
        return Cell(claim.entry, here, "" if here else answer.reasons.get(node, "not viable"))
    if node in round_.candidates and claim.entry in round_.answers:
        return _cell(claim.entry, node, round_.answers[claim.entry])
    waits = node in round_.candidates and claim.entry in round_.claims
    return Cell(claim.entry, None, "not answered" if waits else "not asked")


def _verdict(cells: Sequence[Cell], misfit: str) -> str:
    if misfit:
        return DOES_NOT_FIT
    if any(cell.viable is False for cell in cells):
        return NOT_VIABLE
    return UNKNOWN if any(cell.viable is None for cell in cells) or not cells else VIABLE


def grouped(rows: Sequence[NodeRow]) -> Iterator[tuple[tuple[str, ...], NodeRow]]:
    """Groups nodes with equal rows: yields the nodes' names, and one of their rows."""
    names: dict[object, list[NodeRow]] = {}
    for row in rows:
        names.setdefault((row.verdict, row.fit, row.asked, row.claims), []).append(row)
    for alike in names.values():
        yield tuple(row.node for row in alike), alike[0]
