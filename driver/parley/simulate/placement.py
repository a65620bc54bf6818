"""One scheduling attempt of the simulated kube-scheduler: where the pod fits, or why nowhere. Pure.

The filters that Parley models itself (`parley.negotiation.fit`), then required pod anti-affinity, then the node
selectors of the pod's claims, as upstream orders them: only a node that passes the others can be refused by a
claim, and only such a claim is taken back afterwards. The node with the fewest pods is chosen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parley.api.builtin import AllocatedDeviceStatus, BuiltinClaim, Condition, DeviceResult, Node
from parley.negotiation.fit import Needs, amounts, matches, misfit, needs_of, requested
from parley.simulate.anti_affinity import Pod, kept_apart


@dataclass(slots=True)
class Occupied:
    """A node, and the pods that count for it."""

    node: Node
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to bind; or, if `node` is "", the scheduler's message and the claims that refused some node."""

    node: str
    message: str = ""
    unavailable: tuple[BuiltinClaim, ...] = ()


def place(pod: Pod, claims: Sequence[BuiltinClaim], nodes: Mapping[str, Occupied]) -> Placement:
    """Judge all nodes for a pod whose claims are all allocated."""
    needs, forbidden = needs_of(pod), _forbidden(pod, nodes.values())
    fitting: list[str] = []
    refusals: Counter[str] = Counter()
    unavailable: dict[str, BuiltinClaim] = {}
    for name, occupied in nodes.items():
        if reason := _misfit(needs, occupied) or _repelled(occupied.node, forbidden):
            refusals[f"node(s) {reason}"] += 1
        elif elsewhere := [claim for claim in claims if not _usable(claim, occupied.node)]:
            refusals["resourceclaim not available on the node"] += 1
            unavailable.update((claim.metadata.uid, claim) for claim in elsewhere)
        else:
            fitting.append(name)
    if fitting:
        return Placement(min(fitting, key=lambda name: (len(nodes[name].pods), name)))
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
    return Placement("", unschedulable(len(nodes), reasons), tuple(unavailable.values()))


def unschedulable(nodes: int, reasons: str) -> str:
    """The message of the pod's condition."""
    return f"0/{nodes} nodes are available: {reasons}." if nodes else "no nodes available to schedule pods"


def _misfit(needs: Needs, occupied: Occupied) -> str:
    used: Counter[str] = Counter()
    for other in occupied.pods:
        used.update(requested(other))
    return misfit(needs, occupied.node, amounts(occupied.node.status.allocatable), used, len(occupied.pods))


def _forbidden(pod: Pod, nodes: Iterable[Occupied]) -> frozenset[tuple[str, str]]:
    """Labels, with their values, of nodes that pods are on which the pod must be kept apart from."""
    return frozenset(
        (key, occupied.node.metadata.labels[key])
        for occupied in nodes
        for other in occupied.pods
        for key in kept_apart(pod, other)
        if key in occupied.node.metadata.labels
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


def binding_failed(claim: BuiltinClaim) -> bool:
    """Whether a binding failure condition of some device holds."""
    return any(
        condition.type in result.binding_failure_conditions
        for result in _results(claim)
        for condition in _true_conditions(claim, result)
    )


def _results(claim: BuiltinClaim) -> Sequence[DeviceResult]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _true_conditions(claim: BuiltinClaim, result: DeviceResult) -> Iterable[Condition]:
    for device in claim.status.devices:
        if _same(device, result):
            yield from (condition for condition in device.conditions if condition.status == "True")


def _same(device: AllocatedDeviceStatus, result: DeviceResult) -> bool:
    return (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device)
