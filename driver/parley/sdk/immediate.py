"""The rules for claims with allocationMode Immediate, which are allocated without a pod.

The controller follows them for drivers in its own process (`parley.control.immediate`), a standalone driver for
its own claims (`parley.sdk.standalone.immediate`). No driver is asked here, and nothing is allocated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from parley.api import reasons
from parley.api.builtin import Node
from parley.api.conditions import is_condition_true
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.selectors import suitable_nodes
from parley.negotiation.fit import unsuitable
from parley.sdk.values import PodReference

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


def is_pending(claim: ResourceClaim) -> bool:
    """Whether the claim is to be allocated without a pod, and is not yet."""
    return (
        claim.spec.allocation_mode == "Immediate"
        and not claim.metadata.deletion_timestamp
        and claim.status.allocation is None
    )


def awaits_acceptance(claim: ResourceClaim, class_: ResourceClass) -> bool:
    """Whether a standalone driver has to leave the claim alone: its class has limits, which the controller counts,
    and the condition `Accepted` does not say yet that the claim is within them."""
    return bool(class_.limits) and not is_condition_true(claim.status.conditions, reasons.ACCEPTED)


def no_pod(namespace: str) -> PodReference:
    """Whom a request is for that no pod asks: without name and UID."""
    return PodReference(namespace, "", "")


def unknown_holdings(classes: Iterable[ResourceClass]) -> str:
    """Why a standalone driver, whose classes these are, may not know of all that claims hold; "" if it does.

    What it allocated in the controller is not in its records. The condition `Ready` of its classes says whether it
    ran there until now, and then whether pods still use what it allocated (`parley.control.moved`). One of a class
    that the controller has not looked at says nothing: what another class's claims hold may be the same devices.
    Whose claims that are, in whatever namespaces, is not repeated in a claim.
    """
    return next(filter(None, map(_unknown_holdings, classes)), "")


def _unknown_holdings(class_: ResourceClass) -> str:
    found = next((c for c in class_.status.conditions if c.type == reasons.READY), None)
    if found is not None and found.reason == reasons.DRIVER_MOVED:
        return (
            f"by the status of class {class_.metadata.name}, pods still use what driver {class_.driver_name}"
            " allocated inside the controller, and it does not know of that: wait until they have ended"
        )
    if found is None or found.reason != reasons.IN_CONTROLLER:
        return ""
    return (
        f"by the status of class {class_.metadata.name}, driver {class_.driver_name} still runs in the controller,"
        " and what it allocated there is not known here: wait until the controller runs without it and has looked"
        " at the class"
    )


class NodeRule:
    """Where a claim of the class may be allocated without a pod: on the class's `suitableNodes`, as far as
    Kubernetes sends ordinary pods there.

    How much room is left for pods does not count: the claim may outlive those that take it now.
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
    """Where allocating one claim failed: in this process, while claim and class are as they were.

    `failed` are nodes to try after all others, `excluded` those where the driver never will
    (PermanentError), with its message.
    """

    uid: str
    class_revision: tuple[str, int] | None
    failed: set[str] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)

    @classmethod
    def none(cls, claim: ResourceClaim, class_: ResourceClass | None) -> "FailedNodes":
        """Nothing failed yet. `class_` is None if there is none of that name now."""
        return cls(claim.metadata.uid, class_.revision if class_ is not None else None)

    def are_about(self, claim: ResourceClaim, class_: ResourceClass | None) -> bool:
        """Whether they still count: another claim of that name, or a change of the class, starts over."""
        now = FailedNodes.none(claim, class_)
        return (self.uid, self.class_revision) == (now.uid, now.class_revision)

    def add(self, node: str, message: str, *, permanent: bool) -> None:
        """The driver could not allocate there."""
        self.failed.add(node)
        if permanent:
            self.excluded[node] = message
