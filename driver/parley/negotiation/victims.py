"""Which pods would have to leave which node, so that what they hold there is enough for another pod. Pure.

Sought are pods of the lowest priority, then as few as possible, then those with the fewest claims: sets of the
candidate victims are tried, the small ones first. There may be too many sets: after so many tries it is
the set that is left when one pod after the other is spared that can be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from typing import NamedTuple

from parley.negotiation.preemption import NODES_COMPARED

TRIES = 300
"""So many sets of pods are tried for one decision, over all nodes, before the search gets less exact."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod, by its UID, that holds so many claims on a node."""

    uid: str
    priority: int
    claims: int


Holders = tuple[Holder, ...]


class Cost(NamedTuple):
    """What it costs that pods leave; the smaller one does less harm. `priority` is the highest of the pods'."""

    priority: int
    pods: int
    claims: int


_NOBODY = Cost(-(2**31) - 1, 0, 0)
"""Below any priority that Kubernetes has."""


def cost(victims: Sequence[Holder]) -> Cost:
    """Of these pods leaving."""
    if not victims:
        return _NOBODY
    return Cost(max(one.priority for one in victims), len(victims), sum(one.claims for one in victims))


class Choice(NamedTuple):
    """The pods that are to leave the node; none if it will do without that."""

    node: str
    victims: Holders


Does = Callable[[str, Sequence[Holder]], bool]
"""Whether the node will do once these pods left it; then it will also do once more of them did."""


def choose(holders: Mapping[str, Sequence[Holder]], does: Does) -> Choice | None:
    """The node where it costs least, of equal ones the first; None if no node will do whoever of these leaves.

    Of more than `NODES_COMPARED` nodes that will do the others are not looked at.
    """
    promising = islice((node for node, pods in holders.items() if does(node, pods)), NODES_COMPARED)
    lowest = {node: _lowest(node, holders[node], does) for node in promising}
    if not lowest:
        return None
    level, tries = min(lowest.values()), _Tries(TRIES)
    choices = [
        Choice(node, _fewest([one for one in holders[node] if one.priority <= level], partial(does, node), tries))
        for node, found in lowest.items()
        if found == level
    ]
    return min(choices, key=lambda choice: cost(choice.victims))


def _lowest(node: str, pods: Sequence[Holder], does: Does) -> int:
    """The lowest priority up to which it is enough that all pods leave; below all if nobody has to. It is enough
    if all do."""
    levels = [_NOBODY.priority, *sorted({one.priority for one in pods})]
    enough = (up_to for up_to in levels[:-1] if does(node, [one for one in pods if one.priority <= up_to]))
    return next(enough, levels[-1])


class _Tries:
    def __init__(self, left: int) -> None:
        self.left = left


def _fewest(pods: Sequence[Holder], does: Callable[[Sequence[Holder]], bool], tries: _Tries) -> Holders:
    """Of pods that are enough together."""
    for size in range(len(pods) + 1):
        found: list[Holders] = []
        for some in combinations(pods, size):
            if not tries.left:
                return min(found, key=_harm) if found else _spared(pods, does)
            tries.left -= 1
            if does(some):
                found.append(some)
        if found:
            return min(found, key=_harm)
    return tuple(pods)


def _harm(victims: Holders) -> tuple[Cost, list[int]]:
    """Of as many pods of the same highest priority those do less harm whose others are lower, too."""
    return cost(victims), sorted((one.priority for one in victims), reverse=True)


def _spared(pods: Sequence[Holder], does: Callable[[Sequence[Holder]], bool]) -> Holders:
    left = sorted(pods, key=lambda one: (-one.priority, one.claims))
    for one in tuple(left):
        rest = [other for other in left if other is not one]
        if does(rest):
            left = rest
    return tuple(left)
