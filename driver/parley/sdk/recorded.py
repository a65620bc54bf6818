"""The record of an allocation in a ResourceClaim's status, by the controller or a driver outside of it. Pure."""

from typing import Any

from parley.api.selectors import node_selector
from parley.sdk.driver import Allocation


def allocation_record(driver: str, allocation: Allocation, node: str, *, shareable: bool) -> dict[str, Any]:
    """`status.allocation` for what a driver allocated on the node."""
    handle = {
        "driverName": driver,
        "devices": [{"pool": device.pool, "device": device.device} for device in allocation.devices],
        "data": dict(allocation.data),
    }
    body: dict[str, Any] = {"handles": [handle], "shareable": shareable}
    if allocation.available_on is not None:
        body["availableOnNodes"] = node_selector(allocation.available_on or (node,))
    return body
