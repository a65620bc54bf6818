"""A model of the scheduler's own preemption: which pods of lower priority would have to be evicted from a node to
make room for a pod. Pure.

Pods are summed by priority, so that the cost of a search does not grow with their number. So the model evicts
all pods of a priority or none; the scheduler then evicts as few of them as it can. Disruption budgets are ignored:
the scheduler only prefers to keep them. Source: plugins/defaultpreemption of Kubernetes 1.37.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parley.negotiation.fit import Needs, shortage
from parley.negotiation.requests import Amounts

NODES_COMPARED = 100
"""The most nodes that are compared for an eviction: the least number that the scheduler compares."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The summed requests of the pods of one priority, in thousandths, and their number."""

    amounts: Amounts
    pods: int


class Eviction(NamedTuple):
    """The pods to evict, at most; a smaller value does less harm. `priority` is the highest of these pods."""

    priority: int
    pods: int


def eviction(needs: Needs, priority: int, allocatable: Amounts, used: Mapping[int, Sum]) -> Eviction | None:
    """The pods to evict from the node, lowest priorities first, to make room for a pod of that priority.

    None if the pod doesn't fit even then, or if no eviction is needed. `used` has the node's pods by priority.
    """
    remaining = {name: sum(each.amounts.get(name, 0) for each in used.values()) for name, _ in needs.requests}
    pods, evicted = sum(each.pods for each in used.values()), 0
    if not shortage(needs, allocatable, remaining, pods):
        return None
    for lower in sorted(level for level in used if level < priority):
        evicted += used[lower].pods
        for name in remaining:
            remaining[name] -= used[lower].amounts.get(name, 0)
        if not shortage(needs, allocatable, remaining, pods - evicted):
            return Eviction(lower, evicted)
    return None
