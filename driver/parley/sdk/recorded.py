"""The record of an allocation in a ResourceClaim's status: what is written, what it means, and when it has to go.

The rules of the controller and of standalone drivers alike. Pure. That a record is well-formed was checked by the
API server.
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
"""What a merge patch of the status has to hold when the driver has deallocated: all of it in one write."""


def allocation_record(driver: str, allocation: Allocation, node: str, *, shareable: bool) -> dict[str, Any]:
    """`status.allocation` for what a driver allocated on the node."""
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
    """Names begin with that of the node which it was allocated for: whoever restores it reads that one."""
    if not on:
        return (node,)
    return (node, *(name for name in on if name != node)) if isinstance(on, tuple) and node in on else on


def driver_of_record(claim: ResourceClaim) -> str:
    """The driver that allocated the claim by its own record, "" if nobody did."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    return allocation.handles[0].driver_name if allocation.handles else claim.status.driver_name or ""


def must_be_deallocated(claim: ResourceClaim) -> bool:
    """Whether the driver has to deallocate what the claim holds: it is asked to, or the claim is deleted. One that
    is deleted while pods use it stays until they are gone."""
    deleted = bool(claim.metadata.deletion_timestamp) and not claim.status.reserved_for
    return claim.status.deallocation_requested or deleted


def recorded(claim: ResourceClaim, nodes: Iterable[Node]) -> tuple[str, Allocation] | None:
    """What was allocated by the claim's record, and where: see `read_allocation`."""
    return read_allocation(claim.status.allocation, nodes) if claim.status.allocation is not None else None


def read_allocation(allocation: models.Allocation, nodes: Iterable[Node]) -> tuple[str, Allocation]:
    """What was allocated, and the node that it was allocated for, which is named first ("" if it can be used
    everywhere, or on one of several nodes that have some labels).

    `nodes` are those of the cluster, for a record that selects them by labels.
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
    """What is reserved by the record; nothing if somebody else wrote it, in another form."""
    if recorded is None:
        return None
    reserve = Reserve(recorded.amounts, recorded.pods, recorded.hold, recorded.yields_to)
    try:
        return reserve if reserve.thousandths() else None
    except ValueError:
        return None


def held_as_recorded(uid: str, node: str, allocation: Allocation) -> Held:
    """What a driver restores of an allocation that is recorded; `node` is "" if the record names none."""
    return Held(uid, node or None, allocation.devices, allocation.data)
