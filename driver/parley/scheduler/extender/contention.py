"""Asks drivers about a pod as if each assumed pod were allocated on all of its nodes.

A node is viable beside the pods assumed there if it is viable for a request with their claims and the pod's. That
is pessimistic, because an assumed pod takes only one of its nodes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import takewhile

from parley.api.builtin import Pod
from parley.api.models import ResourceClass
from parley.control.decision.demand import Demand
from parley.control.state import State
from parley.negotiation.answers import Answers, viable_for_all, without
from parley.negotiation.rounds import Ask
from parley.negotiation.selection import rotated
from parley.scheduler.candidates import ProposedNodes
from parley.scheduler.extender.assumed import AssumedPod, AssumedPods
from parley.sdk import PodReference
from parley.sdk.merging import MOST_CLAIMS, merge_requests

TAKEN = "another pod is about to get what is left"


class LeastAssumed(ProposedNodes):
    """A scheduler's candidates that are eligible for a pod, nodes with the fewest assumed pods first: drivers are
    asked about a node with assumed pods twice, the second time with these pods' claims. (If claims are packed, the
    fullest nodes come first all the same: each pod is assumed on one.) Then come the `preemptible` nodes, where
    the scheduler would evict pods of lower priority."""

    def __init__(
        self,
        state: State,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        proposed: Sequence[str],
        assumed: AssumedPods,
        preemptible: Sequence[str] = (),
    ) -> None:
        super().__init__(state, pod, classes, only, [*proposed, *preemptible] if preemptible else proposed)
        self._assumed = assumed
        self._preemptible = frozenset(preemptible)

    def __iter__(self) -> Iterator[str]:
        return self._preemptible_last(self._least_assumed())

    def beginning_with(self, first: Iterable[str]) -> Iterator[str]:
        return self._preemptible_last(super().beginning_with(first))

    def _preemptible_last(self, eligible: Iterator[str]) -> Iterator[str]:
        last: list[str] = []
        for node in eligible:
            if self.evicts(node):
                last.append(node)
            else:
                yield node
        yield from last

    def evicts(self, node: str) -> bool:
        return node in self._preemptible

    def _least_assumed(self) -> Iterator[str]:
        with_assumed: list[str] = []
        for name in rotated(self._candidate_names(), self.uid):
            if self._assumed.on(name):
                with_assumed.append(name)
            elif self.fits(name):
                yield name
        with_assumed.sort(key=lambda name: len(self._assumed.on(name)))
        yield from filter(self.fits, with_assumed)


def with_assumed_pods(
    assumed: AssumedPods,
    pod: PodReference,
    demand: Demand,
    ask: Ask,
    best_first: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Ask:
    """The same question, with answers that stay true wherever the assumed pods are bound. With `best_first` only
    the best viable node is checked for that."""

    def answers(nodes: Sequence[str]) -> Answers:
        found = ask(nodes)
        viable = viable_for_all(nodes, found)
        if best_first is None:
            lost: Iterable[str] = _lost(assumed, pod, demand, viable)
        else:
            lost = takewhile(lambda node: _lost(assumed, pod, demand, (node,)), best_first(viable))
        return without(found, dict.fromkeys(lost, TAKEN))

    return answers


def _lost(assumed: AssumedPods, pod: PodReference, demand: Demand, viable: Sequence[str]) -> frozenset[str]:
    """The viable nodes that may be full once the assumed pods are bound."""
    groups: defaultdict[tuple[PodReference, ...], list[str]] = defaultdict(list)
    known: dict[PodReference, AssumedPod] = {}
    for node in viable:
        others = {user: h for user, h in assumed.on(node).items() if user != pod and _compete(h.demand, demand)}
        known.update(others)
        if others:
            groups[tuple(others)].append(node)
    lost: set[str] = set()
    for users, nodes in groups.items():
        lost.update(_full([known[user].demand for user in users], demand, nodes))
    return frozenset(lost)


def _compete(one: Demand, other: Demand) -> bool:
    return not one.requests.keys().isdisjoint(other.requests)


def _full(others: Sequence[Demand], demand: Demand, nodes: Sequence[str]) -> frozenset[str]:
    if sum(len(request.claims) for each in others for request in each.requests.values()) > MOST_CLAIMS:
        return frozenset(nodes)
    left = frozenset(nodes)
    for name, request in demand.requests.items():
        with_others = merge_requests(request, (other.requests[name] for other in others if name in other.requests))
        left = left.intersection(viable_for_all(nodes, demand.embedded[name].viable(with_others, nodes)))
    return frozenset(nodes) - left
