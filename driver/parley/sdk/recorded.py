"""The record of an allocation in a ResourceClaim's status: writes it, reads it, and decides when it has to end.

The controller and standalone drivers share these rules. The API server has checked that records are well-formed.
Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from parley.api import models
from parley.api.builtin import Node, NodeSelector
from parley.api.models import ResourceClaim
from parley.api.selectors import matches, selector_of
from parley.negotiation.availability import AvailableOn, NodeLabels, read_selector, selector_body
from parley.sdk.values import Allocation, Device, Held, Reserve

NOTHING_ALLOCATED: Mapping[str, Any] = {
    "driverName": None,
    "allocation": None,
    "deallocationRequested": None,
}
"""A merge patch of the status for a claim that its driver has deallocated: clears all of it in one write."""


def allocation_record(driver: str, allocation: Allocation, node: str, *, shareable: bool) -> dict[str, Any]:
    """The field `status.allocation` for a driver's allocation on the node."""
    handle = {
        "driverName": driver,
        "devices": [{"pool": device.pool, "device": device.device} for device in allocation.devices],
        "data": dict(allocation.data),
    }
    body: dict[str, Any] = {"handles": [handle], "shareable": shareable}
    if allocation.available_on is not None:
        body["availableOnNodes"] = selector_body(_with_first(node, allocation.available_on))
    if (reserve := allocation.reserve) is not None:
        body["reserve"] = {"amounts": dict(reserve.amounts), "pods": reserve.pods, "hold": reserve.hold}
        if reserve.yields_to:
            body["reserve"]["yieldsTo"] = list(reserve.yields_to)
    return body


def _with_first(node: str, on: AvailableOn) -> tuple[str, ...] | NodeLabels | NodeSelector:
    """The nodes with the one that the claim was allocated for first: a restored allocation is counted there."""
    if not on:
        return (node,)
    return (node, *(name for name in on if name != node)) if isinstance(on, tuple) and node in on else on


def driver_of_record(claim: ResourceClaim) -> str:
    """The driver that allocated the claim, by the claim's record; "" if it is not allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    return allocation.handles[0].driver_name if allocation.handles else claim.status.driver_name or ""


def must_be_deallocated(claim: ResourceClaim) -> bool:
    """Whether the driver has to deallocate the claim: it was asked to, or the claim is being deleted and no pod
    uses it any more."""
    deleted = bool(claim.metadata.deletion_timestamp) and not claim.status.reserved_for
    return claim.status.deallocation_requested or deleted


def recorded(claim: ResourceClaim, nodes: Iterable[Node]) -> tuple[str, Allocation] | None:
    """The node and the allocation in the claim's record, None if there is none: see `read_allocation`."""
    return read_allocation(claim.status.allocation, nodes) if claim.status.allocation is not None else None


def read_allocation(allocation: models.Allocation, nodes: Iterable[Node]) -> tuple[str, Allocation]:
    """The node that the claim was allocated for, and the allocation. The node is the first one named; "" if the
    allocation can be used on every node, or on several nodes with some labels.

    `nodes` are those of the cluster, for a record that selects nodes by labels.
    """
    handle = allocation.handles[0] if allocation.handles else None
    devices = tuple(Device(d.pool, d.device) for d in handle.devices) if handle is not None else ()
    data = (handle.data if handle is not None else None) or {}
    if allocation.available_on_nodes is None:
        return "", Allocation(devices, data, None)
    reserve = _reserve(allocation.reserve)
    selector = selector_of(allocation.available_on_nodes)
    on = read_selector(selector)
    if isinstance(on, tuple):
        return (on[0] if on else ""), Allocation(devices, data, on if len(on) > 1 else (), reserve)
    selected = [node.metadata.name for node in nodes if matches(selector, node)]
    return (selected[0] if len(selected) == 1 else ""), Allocation(devices, data, on, reserve)


def _reserve(recorded: models.Reserve | None) -> Reserve | None:
    """The reserve in the record; None if another client wrote one that is empty or can't be parsed."""
    if recorded is None:
        return None
    reserve = Reserve(recorded.amounts, recorded.pods, recorded.hold, recorded.yields_to)
    try:
        return reserve if reserve.thousandths() else None
    except ValueError:
        return None


def held_as_recorded(uid: str, node: str, allocation: Allocation) -> Held:
    """A recorded allocation as a driver's `restore` gets it; `node` is "" if the record names none."""
    return Held(uid, node or None, allocation.devices, allocation.data)
