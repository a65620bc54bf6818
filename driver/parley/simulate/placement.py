"""One scheduling cycle of the simulated kube-scheduler: the node where the pod fits, or why there is none. No I/O.

Filters are the ones that Parley evaluates itself (`parley.negotiation.fit`), then required pod anti-affinity, then
the node selectors of the pod's claims, in upstream's order: only a node that passes the others can be rejected by
a claim, and only such a claim is deallocated afterwards. A feasible nominated node is chosen, whichever scheduler
nominated it; otherwise the node with the fewest pods.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from parley.api.builtin import AllocatedDeviceStatus, BuiltinClaim, Condition, DeviceResult, Node
from parley.api.selectors import matches
from parley.control.objects.mirror import nodes_of
from parley.kube.clock import moment
from parley.negotiation.fit import Needs, misfit, needs_of, selected, untolerated_taint
from parley.simulate.anti_affinity import Pod, conflicting_topology_keys
from parley.simulate.node_table import NodeInfo, NodeTable
from parley.simulate.scheduling_queue import Plugin

__all__ = [
    "BINDING_TIMEOUT",
    "NodeInfo",
    "SimulatedPlacement",
    "anti_affinity_labels",
    "binding_failed",
    "has_binding_conditions",
    "in_tree_misfit",
    "place",
    "ready_to_bind",
    "timed_out",
    "unschedulable",
]

BINDING_TIMEOUT = 600.0
"""Seconds to wait for binding conditions."""


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """The result of a scheduling cycle: the node to bind to; or, if `node` is "", the scheduler's message, the
    claims that rejected nodes, the nodes where evictions might help, and the plugins that rejected nodes."""

    node: str
    message: str = ""
    unavailable: tuple[BuiltinClaim, ...] = ()
    preemptible: tuple[str, ...] = ()
    rejectors: frozenset[Plugin] = frozenset()


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a pod does not fit on a node, apart from claims; the plugin that rejects it, and whether evictions might
    help."""

    reason: str
    plugin: Plugin
    resolvable: bool


def place(
    pod: Pod, claims: Sequence[BuiltinClaim], nodes: Mapping[str, NodeInfo], now: datetime | None = None
) -> SimulatedPlacement:
    """Choose a node for a pod whose claims are all allocated. With a `NodeTable` not all nodes are visited.

    Without `now` no offer times out.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    ended = [c.metadata.uid for c in claims if binding_failed(c) or (now is not None and timed_out(c, now))]
    needs, forbidden = needs_of(pod), anti_affinity_labels(pod, table)
    nominated = pod.status.nominated_node_name
    for name in chain([nominated] if nominated in table else (), _preferred_nodes(claims, table)):
        node_info = table.for_pod(name, pod)
        fits = not _misfit(needs, node_info) and not _repelled(node_info.node, forbidden)
        if fits and not ended and all(_usable(claim, node_info.node) for claim in claims):
            return SimulatedPlacement(name)
    return _evaluate_all(pod, claims, table, forbidden, ended)


def _preferred_nodes(claims: Sequence[BuiltinClaim], table: NodeTable) -> Iterator[str]:
    """The nodes to evaluate, in order of preference: those that the claims name, or all."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    named = [frozenset(nodes) for allocation in allocations if (nodes := nodes_of(allocation))]
    if not named:
        return table.fewest_first()
    there = [name for name in frozenset.intersection(*named) if name in table]
    return iter(sorted(there, key=lambda name: (len(table[name].pods), name)))


def _evaluate_all(
    pod: Pod,
    claims: Sequence[BuiltinClaim],
    table: NodeTable,
    forbidden: frozenset[tuple[str, str]],
    ended: Collection[str],
) -> SimulatedPlacement:
    """Evaluates all nodes, with the reasons against each. Claims that have `ended` are usable on none."""
    fitting: list[NodeInfo] = []
    refusals: Counter[str] = Counter()
    unavailable: dict[str, BuiltinClaim] = {}
    preemptible: list[str] = []
    rejectors: set[Plugin] = set()
    needs = needs_of(pod)
    for node_info in (table.for_pod(name, pod) for name in table):
        elsewhere = [c for c in claims if c.metadata.uid in ended or not _usable(c, node_info.node)]
        if (found := in_tree_misfit(needs, node_info, forbidden)) is not None:
            refusals[f"node(s) {found.reason}"] += 1
            rejectors.add(found.plugin)
            if found.resolvable and not elsewhere:
                preemptible.append(node_info.node.metadata.name)
        elif elsewhere:
            refusals["resourceclaim not available on the node"] += 1
            rejectors.add(Plugin.DYNAMIC_RESOURCES)
            unavailable.update((claim.metadata.uid, claim) for claim in elsewhere)
        else:
            fitting.append(node_info)
    if fitting:
        chosen = min(fitting, key=lambda node_info: (len(node_info.pods), node_info.node.metadata.name))
        return SimulatedPlacement(chosen.node.metadata.name)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
    message = unschedulable(len(table), reasons)
    return SimulatedPlacement("", message, tuple(unavailable.values()), tuple(preemptible), frozenset(rejectors))


def unschedulable(nodes: int, reasons: str) -> str:
    """The message of the pod's condition."""
    return f"0/{nodes} nodes are available: {reasons}." if nodes else "no nodes available to schedule pods"


def _misfit(needs: Needs, node_info: NodeInfo) -> str:
    return misfit(needs, node_info.node, node_info.allocatable, node_info.used, len(node_info.pods))


def in_tree_misfit(needs: Needs, node_info: NodeInfo, forbidden: frozenset[tuple[str, str]]) -> Misfit | None:
    """Why the pod does not fit on the node, apart from claims; None if it does."""
    if reason := _misfit(needs, node_info):
        resolvable = not misfit(needs, node_info.node, node_info.allocatable, {}, 0)
        return Misfit(reason, _rejector(needs, node_info.node), resolvable)
    reason = _repelled(node_info.node, forbidden)
    return Misfit(reason, Plugin.INTER_POD_AFFINITY, resolvable=True) if reason else None


def _rejector(needs: Needs, node: Node) -> Plugin:
    """The first filter plugin that rejects the node for the pod."""
    if untolerated_taint(needs, node):
        return Plugin.TAINT_TOLERATION
    return Plugin.NODE_RESOURCES_FIT if selected(needs, node) else Plugin.NODE_AFFINITY


def anti_affinity_labels(pod: Pod, table: NodeTable) -> frozenset[tuple[str, str]]:
    """The labels, with values, of nodes that have pods which conflict with the pod by anti-affinity."""
    return frozenset(
        (key, node.metadata.labels[key])
        for node, other in table.possibly_conflicting(pod)
        for key in conflicting_topology_keys(pod, other)
        if key in node.metadata.labels
    )


def _repelled(node: Node, forbidden: frozenset[tuple[str, str]]) -> str:
    if forbidden.isdisjoint(node.metadata.labels.items()):
        return ""
    return "didn't match pod anti-affinity rules"


def _usable(claim: BuiltinClaim, node: Node) -> bool:
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation else None
    return selector is None or matches(selector, node)


def ready_to_bind(claim: BuiltinClaim) -> bool:
    """Whether every binding condition of every device holds."""
    return all(
        set(result.binding_conditions) <= {c.type for c in _true_conditions(claim, result)}
        for result in _results(claim)
    )


def has_binding_conditions(claim: BuiltinClaim) -> bool:
    """Whether any device has binding conditions, so that the scheduler checks the claim again before it binds."""
    return any(result.binding_conditions for result in _results(claim))


def timed_out(claim: BuiltinClaim, now: datetime) -> bool:
    """Whether binding conditions were not met in time, counted from the allocation (isClaimTimeout)."""
    allocation = claim.status.allocation
    if allocation is None or not has_binding_conditions(claim) or ready_to_bind(claim):
        return False
    begun = moment(allocation.allocation_timestamp or "")
    return begun is not None and begun + timedelta(seconds=BINDING_TIMEOUT) < now


def binding_failed(claim: BuiltinClaim) -> bool:
    """Whether a binding failure condition holds for the first device that is not ready to bind: devices are
    checked in order."""
    for result in _results(claim):
        held = {condition.type for condition in _true_conditions(claim, result)}
        if not result.binding_conditions:
            continue
        if not held.isdisjoint(result.binding_failure_conditions):
            return True
        if not held.issuperset(result.binding_conditions):
            return False
    return False


def _results(claim: BuiltinClaim) -> Sequence[DeviceResult]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _true_conditions(claim: BuiltinClaim, result: DeviceResult) -> Iterable[Condition]:
    for device in claim.status.devices:
        if _same(device, result):
            yield from (condition for condition in device.conditions if condition.status == "True")


def _same(device: AllocatedDeviceStatus, result: DeviceResult) -> bool:
    return (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device)
