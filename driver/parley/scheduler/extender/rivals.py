"""Asks drivers about a pod as if all pods that were told a node, and have not taken it yet, got it.

A driver judges all claims of a request together. So a node is viable beside others' holds if a request with their
claims and the pod's is: nothing about a driver need be known for it. Pessimistic: of several nodes that a pod was
told it takes one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from parley.api.builtin import Pod
from parley.api.models import ResourceClass
from parley.control.cluster import Cluster
from parley.control.demand import Demand
from parley.control.eligible import spread
from parley.negotiation.answers import Answer, Answers, viable_for_all
from parley.negotiation.rounds import Ask
from parley.scheduler.candidates import ProposedNodes
from parley.scheduler.extender.holds import Hold, Holds
from parley.sdk import PodReference, Request
from parley.sdk.embedded import EmbeddedDriver

PROMISED = "another pod is just getting what is left"

MOST_CLAIMS = 64
"""So many claims are judged together at most; a node that more may get is left to them for the moment."""


class LeastPromised(ProposedNodes):
    """Iterates over those first that the fewest pods were told: about a node that others were told drivers are
    asked once more, with what the others want."""

    def __init__(
        self,
        cluster: Cluster,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        proposed: Sequence[str],
        holds: Holds,
    ) -> None:
        super().__init__(cluster, pod, classes, only, proposed)
        self._holds = holds

    def __iter__(self) -> Iterator[str]:
        promised: list[str] = []
        for name in spread(self._names(), self.uid):
            if self._holds.on(name):
                promised.append(name)
            elif self.fits(name):
                yield name
        promised.sort(key=lambda name: len(self._holds.on(name)))
        yield from filter(self.fits, promised)


def beside(
    drivers: Mapping[str, EmbeddedDriver], holds: Holds, pod: PodReference, demand: Demand, ask: Ask
) -> Ask:
    """The same question, with answers that stay true whatever the other pods take."""

    def answers(nodes: Sequence[str]) -> Answers:
        found = ask(nodes)
        lost = _lost(drivers, holds, pod, demand, viable_for_all(nodes, found))
        return {entry: _without(answer, lost) for entry, answer in found.items()} if lost else found

    return answers


def _lost(
    drivers: Mapping[str, EmbeddedDriver],
    holds: Holds,
    pod: PodReference,
    demand: Demand,
    viable: Sequence[str],
) -> frozenset[str]:
    """The nodes that may be full once the other pods have what they were told."""
    groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    known: dict[str, Hold] = {}
    for node in viable:
        rivals = {uid: h for uid, h in holds.on(node).items() if uid != pod.uid and _compete(h.demand, demand)}
        known.update(rivals)
        if rivals:
            groups[tuple(rivals)].append(node)
    lost: set[str] = set()
    for uids, nodes in groups.items():
        lost.update(_full(drivers, [known[uid].demand for uid in uids], demand, nodes))
    return frozenset(lost)


def _compete(one: Demand, other: Demand) -> bool:
    return not one.requests.keys().isdisjoint(other.requests)


def _full(
    drivers: Mapping[str, EmbeddedDriver], rivals: Sequence[Demand], demand: Demand, nodes: Sequence[str]
) -> frozenset[str]:
    if sum(len(request.claims) for each in rivals for request in each.requests.values()) > MOST_CLAIMS:
        return frozenset(nodes)
    left = frozenset(nodes)
    for name, request in demand.requests.items():
        together = _together(request, [r.requests[name] for r in rivals if name in r.requests])
        left = left.intersection(viable_for_all(nodes, drivers[name].viable(together, nodes)))
    return frozenset(nodes) - left


def _together(request: Request[Any, Any], rivals: Sequence[Request[Any, Any]]) -> Request[Any, Any]:
    """One request with the claims of all, under names that do not clash."""
    others = tuple(
        replace(claim, name=f"{rival.pod.uid}/{claim.name}") for rival in rivals for claim in rival.claims
    )
    return replace(request, claims=(*request.claims, *others))


def _without(answer: Answer, lost: frozenset[str]) -> Answer:
    viable = tuple(node for node in answer.viable if node not in lost)
    reasons = dict.fromkeys(lost.intersection(answer.viable), PROMISED)
    return Answer(viable, answer.alternatives, {**answer.reasons, **reasons})
