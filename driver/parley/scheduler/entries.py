"""Converts standalone drivers' entries in a PodScheduling into answers. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from parley.api.builtin import NodeSelector
from parley.api.models import Alternatives, ClaimScheduling
from parley.api.selectors import selector_of
from parley.negotiation.answers import Answer, CannotAnswer

_NOT_VIABLE = "not viable"


def scores_of(entries: Iterable[ClaimScheduling]) -> dict[str, float]:
    """A driver's preferences among nodes, from 0 to 1: for each node the best score in any of the entries."""
    best: dict[str, float] = {}
    for entry in entries:
        for node, score in entry.scores.items():
            best[node] = max(best.get(node, 0.0), score / 100)
    return best


def capacity_of(entries: Sequence[ClaimScheduling]) -> dict[str, int]:
    """How many pods each viable node has enough for, according to all of a driver's entries for a pod."""
    nodes = set.intersection(*(set(entry.viable_nodes) & entry.capacity.keys() for entry in entries))
    return {node: min(entry.capacity[node] for entry in entries) for node in nodes}


def answer_of(entry: ClaimScheduling, candidates: Sequence[str], excluded: Mapping[str, str]) -> Answer:
    """The answer about the candidates in a driver's entry. Nodes that it was not asked about are ignored."""
    given = frozenset(entry.viable_nodes)
    viable = tuple(node for node in candidates if node in given and node not in excluded)
    unviable = [node for node in candidates if node not in given and node not in excluded]
    parts = _by_node(entry.reason, candidates)
    reason = entry.reason or _NOT_VIABLE
    reasons_ = {node: parts.get(node, _NOT_VIABLE if parts else reason) for node in unviable}
    failure = CannotAnswer(entry.waiting_for, reason) if entry.waiting_for is not None and not given else None
    reasons_ |= _among(excluded, candidates)
    return Answer(viable, _alternatives(entry.alternatives), reasons_, failure)


def _by_node(reason: str, candidates: Sequence[str]) -> dict[str, str]:
    """The parts of a driver's reason by candidate node, if it lists them as "node: why; node: why". A part may
    itself contain semicolons."""
    found: dict[str, str] = {}
    known, node = frozenset(candidates), ""
    for part in reason.split("; "):
        name, colon, why = part.partition(": ")
        if colon and name in known:
            node = name
            found[node] = why
        elif node:
            found[node] += f"; {part}"
    return found


def _among(reasons_by_node: Mapping[str, str], nodes: Sequence[str]) -> dict[str, str]:
    return {node: reasons_by_node[node] for node in nodes if node in reasons_by_node}


def _alternatives(given: Alternatives | None) -> tuple[str, ...] | NodeSelector | None:
    if given is None:
        return None
    if given.node_selector is not None:
        return selector_of(given.node_selector)
    return given.nodes
