"""One scheduling attempt of the simulated kube-scheduler: where the pod fits, or why nowhere. Pure.

The filters that Parley models itself (`parley.negotiation.fit`), then required pod anti-affinity, then the node
selectors of the pod's claims, as upstream orders them: only a node that passes the others can be refused by a
claim, and only such a claim is taken back afterwards. A nominated node that will do is chosen, also if a scheduler
before this one nominated it; otherwise the node with the fewest pods.
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
from parley.negotiation.fit import Needs, misfit, needs_of, selected, untolerated
from parley.simulate.anti_affinity import Pod, kept_apart
from parley.simulate.node_table import NodeTable, Occupied
from parley.simulate.scheduling_queue import Plugin

__all__ = [
    "BINDING_TIMEOUT",
    "Occupied",
    "SimulatedPlacement",
    "binding_failed",
    "has_binding_conditions",
    "in_tree_misfit",
    "keeping_apart",
    "place",
    "ready_to_bind",
    "timed_out",
    "unschedulable",
]

BINDING_TIMEOUT = 600.0
"""Seconds that binding conditions are waited for."""


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """Where to bind; or, if `node` is "", the scheduler's message, the claims that refused some node, where an
    eviction might help, and which plugins rejected nodes."""

    node: str
    message: str = ""
    unavailable: tuple[BuiltinClaim, ...] = ()
    preemptible: tuple[str, ...] = ()
    rejectors: frozenset[Plugin] = frozenset()


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a pod does not fit on a node, claims apart, which plugin says so, and whether it might if other pods
    went."""

    reason: str
    plugin: Plugin
    resolvable: bool


def place(
    pod: Pod, claims: Sequence[BuiltinClaim], nodes: Mapping[str, Occupied], now: datetime | None = None
) -> SimulatedPlacement:
    """Judge the nodes for a pod whose claims are all allocated. A `NodeTable` saves looking at all of them.

    Without `now` no offer is too old.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    ended = [c.metadata.uid for c in claims if binding_failed(c) or (now is not None and timed_out(c, now))]
    needs, forbidden = needs_of(pod), keeping_apart(pod, table)
    nominated = pod.status.nominated_node_name
    for name in chain([nominated] if nominated in table else (), _promising(claims, table)):
        occupied = table.judged(name, pod)
        fits = not _misfit(needs, occupied) and not _repelled(occupied.node, forbidden)
        if fits and not ended and all(_usable(claim, occupied.node) for claim in claims):
            return SimulatedPlacement(name)
    return _anywhere(pod, claims, table, forbidden, ended)


def _promising(claims: Sequence[BuiltinClaim], table: NodeTable) -> Iterator[str]:
    """The nodes that may do, in the order of preference: those that the claims name, or all."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    named = [frozenset(nodes) for allocation in allocations if (nodes := nodes_of(allocation))]
    if not named:
        return table.fewest_first()
    there = [name for name in frozenset.intersection(*named) if name in table]
    return iter(sorted(there, key=lambda name: (len(table[name].pods), name)))


def _anywhere(
    pod: Pod,
    claims: Sequence[BuiltinClaim],
    table: NodeTable,
    forbidden: frozenset[tuple[str, str]],
    ended: Collection[str],
) -> SimulatedPlacement:
    """All nodes, each with what speaks against it. The claims that have `ended` can be used on none."""
    fitting: list[Occupied] = []
    refusals: Counter[str] = Counter()
    unavailable: dict[str, BuiltinClaim] = {}
    preemptible: list[str] = []
    rejectors: set[Plugin] = set()
    needs = needs_of(pod)
    for occupied in (table.judged(name, pod) for name in table):
        elsewhere = [c for c in claims if c.metadata.uid in ended or not _usable(c, occupied.node)]
        if (found := in_tree_misfit(needs, occupied, forbidden)) is not None:
            refusals[f"node(s) {found.reason}"] += 1
            rejectors.add(found.plugin)
            if found.resolvable and not elsewhere:
                preemptible.append(occupied.node.metadata.name)
        elif elsewhere:
            refusals["resourceclaim not available on the node"] += 1
            rejectors.add(Plugin.DYNAMIC_RESOURCES)
            unavailable.update((claim.metadata.uid, claim) for claim in elsewhere)
        else:
            fitting.append(occupied)
    if fitting:
        chosen = min(fitting, key=lambda occupied: (len(occupied.pods), occupied.node.metadata.name))
        return SimulatedPlacement(chosen.node.metadata.name)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
    message = unschedulable(len(table), reasons)
    return SimulatedPlacement("", message, tuple(unavailable.values()), tuple(preemptible), frozenset(rejectors))


def unschedulable(nodes: int, reasons: str) -> str:
    """The message of the pod's condition."""
    return f"0/{nodes} nodes are available: {reasons}." if nodes else "no nodes available to schedule pods"


def _misfit(needs: Needs, occupied: Occupied) -> str:
    return misfit(needs, occupied.node, occupied.allocatable, occupied.used, len(occupied.pods))


def in_tree_misfit(needs: Needs, occupied: Occupied, forbidden: frozenset[tuple[str, str]]) -> Misfit | None:
    """Why the pod does not fit on the node, claims apart."""
    if reason := _misfit(needs, occupied):
        resolvable = not misfit(needs, occupied.node, occupied.allocatable, {}, 0)
        return Misfit(reason, _rejector(needs, occupied.node), resolvable)
    reason = _repelled(occupied.node, forbidden)
    return Misfit(reason, Plugin.INTER_POD_AFFINITY, resolvable=True) if reason else None


def _rejector(needs: Needs, node: Node) -> Plugin:
    """The first of the filters that the pod does not pass on the node."""
    if untolerated(needs, node):
        return Plugin.TAINT_TOLERATION
    return Plugin.NODE_RESOURCES_FIT if selected(needs, node) else Plugin.NODE_AFFINITY


def keeping_apart(pod: Pod, table: NodeTable) -> frozenset[tuple[str, str]]:
    """Labels, with their values, of nodes that pods are on which the pod must be kept apart from."""
    return frozenset(
        (key, node.metadata.labels[key])
        for node, other in table.may_mind(pod)
        for key in kept_apart(pod, other)
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
    """Whether any device has some, so that the scheduler looks at the claim again before it binds."""
    return any(result.binding_conditions for result in _results(claim))


def timed_out(claim: BuiltinClaim, now: datetime) -> bool:
    """Whether binding conditions were not met in time, which counts from the allocation (isClaimTimeout)."""
    allocation = claim.status.allocation
    if allocation is None or not has_binding_conditions(claim) or ready_to_bind(claim):
        return False
    begun = moment(allocation.allocation_timestamp or "")
    return begun is not None and begun + timedelta(seconds=BINDING_TIMEOUT) < now


def binding_failed(claim: BuiltinClaim) -> bool:
    """Whether a binding failure condition holds of the first device that is not ready to bind: each is looked at
    in turn."""
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
