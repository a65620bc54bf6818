"""The victims of claim preemption: the pods to evict from a node so that their claims make room for a pod. Pure.

Victims are pods of the lowest priority, then as few as possible, then those with the fewest claims: sets of the
candidate victims are tried, the small ones first. There may be too many sets: after `TRIES` of them, all
candidates are victims except those that can be spared, tried one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from typing import NamedTuple

from parley.negotiation.preemption import NODES_COMPARED

TRIES = 300
"""The most sets of pods that are tried for one decision, over all nodes, before the search gets less exact."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod, by its UID, that holds claims on a node, and their number: a candidate victim."""

    uid: str
    priority: int
    claims: int


Holders = tuple[Holder, ...]


class Cost(NamedTuple):
    """The cost of evicting pods; a smaller one does less harm. `priority` is the highest of the pods."""

    priority: int
    pods: int
    claims: int


_NO_VICTIMS = Cost(-(2**31) - 1, 0, 0)
"""Its priority is below any that Kubernetes has."""


def cost(victims: Sequence[Holder]) -> Cost:
    """The cost of evicting these pods."""
    if not victims:
        return _NO_VICTIMS
    return Cost(max(one.priority for one in victims), len(victims), sum(one.claims for one in victims))


class Choice(NamedTuple):
    """The node and the pods to evict from it; none if the node does without evictions."""

    node: str
    victims: Holders


Does = Callable[[str, Sequence[Holder]], bool]
"""Whether the node has room for the pod once these pods are evicted; if so, also once more pods are."""


def choose(holders: Mapping[str, Sequence[Holder]], does: Does) -> Choice | None:
    """The node with the lowest cost, the first of equal ones; None if no node does, even without all holders.

    Compares the first `NODES_COMPARED` nodes that do, and ignores the others.
    """
    promising = islice((node for node, pods in holders.items() if does(node, pods)), NODES_COMPARED)
    lowest = {node: _lowest(node, holders[node], does) for node in promising}
    if not lowest:
        return None
    level, tries = min(lowest.values()), _Tries(TRIES)
    choices = [
        Choice(node, _fewest([one for one in holders[node] if one.priority <= level], partial(does, node), tries))
        for node, own_level in lowest.items()
        if own_level == level
    ]
    return min(choices, key=lambda choice: cost(choice.victims))


def _lowest(node: str, pods: Sequence[Holder], does: Does) -> int:
    """The lowest priority so that evicting all pods up to it is enough; `_NO_VICTIMS.priority` if no pod has to
    go. Evicting all pods must be enough."""
    levels = [_NO_VICTIMS.priority, *sorted({one.priority for one in pods})]
    enough = (up_to for up_to in levels[:-1] if does(node, [one for one in pods if one.priority <= up_to]))
    return next(enough, levels[-1])


class _Tries:
    def __init__(self, left: int) -> None:
        self.left = left


def _fewest(pods: Sequence[Holder], does: Callable[[Sequence[Holder]], bool], tries: _Tries) -> Holders:
    """The smallest set of these pods that is enough, of equal ones the least harmful. All together are enough."""
    for size in range(len(pods) + 1):
        enough: list[Holders] = []
        for victims in combinations(pods, size):
            if not tries.left:
                return min(enough, key=_harm) if enough else _without_spared(pods, does)
            tries.left -= 1
            if does(victims):
                enough.append(victims)
        if enough:
            return min(enough, key=_harm)
    return tuple(pods)


def _harm(victims: Holders) -> tuple[Cost, list[int]]:
    """A sort key: of sets of equal cost, the one whose pods have lower priorities otherwise does less harm."""
    return cost(victims), sorted((one.priority for one in victims), reverse=True)


def _without_spared(pods: Sequence[Holder], does: Callable[[Sequence[Holder]], bool]) -> Holders:
    victims = sorted(pods, key=lambda pod: (-pod.priority, pod.claims))
    for pod in tuple(victims):
        rest = [other for other in victims if other is not pod]
        if does(rest):
            victims = rest
    return tuple(victims)
