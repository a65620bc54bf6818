"""The rules for claims with allocationMode Immediate, which are allocated without a pod.

The controller applies them for drivers in its own process (`parley.control.immediate`), a standalone driver for
its own claims (`parley.sdk.standalone.immediate`). Pure: no driver is asked here, and nothing is allocated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from parley.api import reasons
from parley.api.builtin import Node
from parley.api.conditions import is_condition_true
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import is_driver_finalizer
from parley.api.selectors import suitable_nodes
from parley.negotiation.fit import unsuitable
from parley.sdk.values import PodReference

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


def is_pending(claim: ResourceClaim) -> bool:
    """Whether the claim still has to be allocated without a pod."""
    return (
        claim.spec.allocation_mode == "Immediate"
        and not claim.metadata.deletion_timestamp
        and claim.status.allocation is None
    )


def awaits_acceptance(claim: ResourceClaim, class_: ResourceClass) -> bool:
    """Whether a standalone driver has to leave the claim alone: its class has limits, which the controller counts,
    and the condition `Accepted` does not say yet that the claim is within them."""
    return bool(class_.limits) and not is_condition_true(claim.status.conditions, reasons.ACCEPTED)


def may_have_begun(claim: ResourceClaim) -> bool:
    """Whether a standalone driver may be allocating the claim: its finalizer is set before it begins."""
    return any(map(is_driver_finalizer, claim.metadata.finalizers))


def no_pod(namespace: str) -> PodReference:
    """The pod reference of a request without a pod: name and UID are empty."""
    return PodReference(namespace, "", "")


def unknown_holdings(classes: Iterable[ResourceClass]) -> str:
    """Why a standalone driver, whose classes these are, may not know all of its allocations; "" if it does.

    Its records lack what it allocated while it ran in the controller. The condition `Ready` of its classes says
    whether it ran there until now, and then whether pods still use such allocations (`parley.control.moved`). All
    classes count, as their claims may hold the same devices; a class that the controller has not looked at yet
    says nothing. The message does not name the claims: its readers may not see their namespaces.
    """
    return next(filter(None, map(_unknown_holdings, classes)), "")


def _unknown_holdings(class_: ResourceClass) -> str:
    ready = next((c for c in class_.status.conditions if c.type == reasons.READY), None)
    if ready is not None and ready.reason == reasons.DRIVER_MOVED:
        return (
            f"by the status of class {class_.metadata.name}, pods still use what driver {class_.driver_name}"
            " allocated inside the controller, and it does not know of that: wait until they have ended"
        )
    if ready is None or ready.reason != reasons.IN_CONTROLLER:
        return ""
    return (
        f"by the status of class {class_.metadata.name}, driver {class_.driver_name} still runs in the controller,"
        " and what it allocated there is not known here: wait until the controller runs without it and has looked"
        " at the class"
    )


class NodeRule:
    """The nodes where a claim of the class may be allocated without a pod: the class's `suitableNodes`, without
    nodes that are cordoned or have a taint that keeps pods away.

    The room left for pods does not count: the claim may outlive the pods that take it now.
    """

    def __init__(self, class_: ResourceClass) -> None:
        self._class_name = class_.metadata.name
        self._selector = suitable_nodes(class_)

    def misfit(self, node: Node) -> str:
        """Why the claim may not be allocated on the node; "" if it may."""
        if self._selector is not None and (why := unsuitable(self._class_name, self._selector, node)):
            return why
        if node.spec.unschedulable:
            return "cordoned"
        taint = next((taint for taint in node.spec.taints if taint.effect in _KEEPS_PODS_AWAY), None)
        return f"taint {taint.key}:{taint.effect}" if taint is not None else ""


@dataclass(frozen=True, slots=True)
class FailedNodes:
    """The nodes where allocating one claim failed in this process; reset when the claim or its class changes.

    `failed` are nodes to try after all others, `excluded` those where the driver raised PermanentError, with
    its message.
    """

    uid: str
    class_revision: tuple[str, int] | None
    failed: set[str] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)

    @classmethod
    def none(cls, claim: ResourceClaim, class_: ResourceClass | None) -> "FailedNodes":
        """The value before any failure. `class_` is None if the class does not exist now."""
        return cls(claim.metadata.uid, class_.revision if class_ is not None else None)

    def still_apply(self, claim: ResourceClaim, class_: ResourceClass | None) -> bool:
        """Whether the failures still count: another claim of that name, or a change of the class, resets them."""
        now = FailedNodes.none(claim, class_)
        return (self.uid, self.class_revision) == (now.uid, now.class_revision)

    def add(self, node: str, message: str, *, permanent: bool) -> None:
        """Records that the driver could not allocate on the node."""
        self.failed.add(node)
        if permanent:
            self.excluded[node] = message
