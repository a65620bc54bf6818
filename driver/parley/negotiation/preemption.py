"""What it would take to make room for a pod on a node where pods of lower priority are: a model of what the
scheduler's own preemption finds. Pure.

Pods are summed by priority, so that the cost of a look does not grow with how many there are. So the model takes
all pods of a priority or none; the scheduler then evicts as few of them as it can. It knows no disruption budgets,
which the scheduler only prefers to keep. Source: plugins/defaultpreemption of Kubernetes 1.37.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parley.negotiation.fit import Needs, shortage
from parley.negotiation.requests import Amounts

NODES_COMPARED = 100
"""So many nodes are compared where pods would have to go; as many as the scheduler compares at least."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What pods of one priority request together, in thousandths, and how many they are."""

    amounts: Amounts
    pods: int


class Eviction(NamedTuple):
    """What would have to go, at most: the smaller one does less harm. `priority` is the highest of these pods."""

    priority: int
    pods: int


def eviction(needs: Needs, priority: int, allocatable: Amounts, used: Mapping[int, Sum]) -> Eviction | None:
    """What would have to go from the node, lowest priorities first, for a pod of that priority.

    None if the pod doesn't fit even so, or if nothing needs to go. `used` has the node's pods by priority.
    """
    left = {name: sum(one.amounts.get(name, 0) for one in used.values()) for name, _ in needs.requests}
    pods, going = sum(one.pods for one in used.values()), 0
    if not shortage(needs, allocatable, left, pods):
        return None
    for lower in sorted(one for one in used if one < priority):
        going += used[lower].pods
        for name in left:
            left[name] -= used[lower].amounts.get(name, 0)
        if not shortage(needs, allocatable, left, pods - going):
            return Eviction(lower, going)
    return None
