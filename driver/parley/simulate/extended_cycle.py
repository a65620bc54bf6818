"""One scheduling cycle of the simulated kube-scheduler with an extender: in-tree filters, extender, scores.

As upstream with the DynamicResources plugin disabled, claims are not evaluated. A nominated node is tried first
and alone; the extender is not called if no node is left, nor for scores if only one is; a node that is removed
meanwhile may still be chosen. Left out: scores except for the number of pods (a point of the extender's ten weighs
as much as ten pods), and batching of equal pods. Source: schedule_one.go and framework/types.go (FitError) of
Kubernetes 1.37.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parley.negotiation.fit import needs_of
from parley.simulate.anti_affinity import Pod
from parley.simulate.extender_calls import ExtenderCalls, ExtenderFailed
from parley.simulate.node_table import NodeTable
from parley.simulate.placement import anti_affinity_labels, in_tree_misfit, unschedulable
from parley.simulate.scheduling_queue import Plugin

POINT = 10
"""The number of pods on a node that a point of the extender's score outweighs."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """The result of a scheduling cycle: the node to bind to; or, if `node` is "", the message of the pod's
    condition, the nodes where evictions might help, and the plugins that rejected nodes."""

    node: str
    message: str = ""
    preemptible: tuple[str, ...] = ()
    rejectors: frozenset[Plugin] = frozenset()


@dataclass(slots=True)
class _Refusals:
    """The reasons why nodes were rejected; evictions might help on `resolvable` ones."""

    reasons: dict[str, str] = field(default_factory=dict)
    resolvable: dict[str, None] = field(default_factory=dict)
    rejectors: set[Plugin] = field(default_factory=set)

    def add(self, nodes: Mapping[str, str], *, resolvable: bool) -> None:
        self.reasons.update(nodes)
        if resolvable:
            self.resolvable.update(dict.fromkeys(nodes))


async def schedule(pod: Pod, table: NodeTable, calls: ExtenderCalls) -> Cycle:
    """Find a node for the pod. Raises ExtenderFailed."""
    nominated = pod.status.nominated_node_name
    nominated_only = _Refusals()
    if nominated in table:
        try:
            if passed := await _feasible_nodes(pod, table, [nominated], calls, nominated_only):
                return Cycle(passed[0])
        except ExtenderFailed:
            pass  # upstream logs the error and continues with all nodes
    refusals = _Refusals(rejectors=nominated_only.rejectors)
    passed = await _feasible_nodes(pod, table, list(table), calls, refusals)
    if passed:
        return Cycle(await _best(pod, table, passed, calls))
    counts = Counter(reason for reason in refusals.reasons.values() if reason)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return Cycle("", unschedulable(len(table), reasons), tuple(refusals.resolvable), frozenset(refusals.rejectors))


async def _feasible_nodes(
    pod: Pod, table: NodeTable, names: Sequence[str], calls: ExtenderCalls, refusals: _Refusals
) -> Sequence[str]:
    needs, forbidden = needs_of(pod), anti_affinity_labels(pod, table)
    left: list[str] = []
    for name in names:
        if (found := in_tree_misfit(needs, table[name], forbidden)) is not None:
            refusals.add({name: f"node(s) {found.reason}"}, resolvable=found.resolvable)
            refusals.rejectors.add(found.plugin)
        else:
            left.append(name)
    if not left:
        return ()
    filtered = await calls.filter(pod, left)
    if len(filtered.nodes) < len(left):
        refusals.rejectors.add(Plugin.EXTENDER)
    refusals.add(filtered.unresolvable, resolvable=False)
    refusals.add(filtered.failed, resolvable=True)
    return filtered.nodes


async def _best(pod: Pod, table: NodeTable, names: Sequence[str], calls: ExtenderCalls) -> str:
    if len(names) == 1:
        return names[0]
    try:
        scores = await calls.prioritize(pod, names)
    except ExtenderFailed:
        scores = {}  # as upstream

    def order(name: str) -> tuple[int, str]:
        pods = len(table[name].pods) if name in table else 0
        return pods - POINT * scores.get(name, 0), name

    return min(names, key=order)
