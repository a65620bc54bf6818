"""Tells a driver what it holds by the claims' own records: at start, and when an allocation turns up later."""

from typing import Any

from parley.api.models import Allocation as Record
from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.sdk.driver import Device, Driver, Held
from parley.sdk.standalone.holdings import Holding, Holdings, Stage
from parley.sdk.standalone.records import Records
from parley.sdk.standalone.view import View


def is_of(driver: str, claim: ResourceClaim) -> bool:
    """Whether the driver allocated the claim."""
    allocation = claim.status.allocation
    return allocation is not None and bool(allocation.handles) and allocation.handles[0].driver_name == driver


def held(claim: ResourceClaim) -> Held:
    """What an allocated claim holds."""
    assert claim.status.allocation is not None
    handle = claim.status.allocation.handles[0]
    devices = tuple(Device(device.pool, device.device) for device in handle.devices)
    return Held(claim.metadata.uid, first_node(claim.status.allocation), devices, handle.data or {})


def first_node(allocation: Record) -> str | None:
    """The first node that the allocation names; None if it can be used everywhere."""
    selector = allocation.available_on_nodes
    fields = (field for term in selector.node_selector_terms for field in term.match_fields) if selector else ()
    return next((field.values[0] for field in fields if field.values), None)


def restore_one(driver: Driver[Any, Any], holdings: Holdings, claim: ResourceClaim) -> None:
    """The driver counts what the claim's record says."""
    found, meta = held(claim), claim.metadata
    driver.restore(found)
    holdings.put(meta.uid, Holding((meta.namespace, meta.name), found.node, Stage.RECORDED))


def restore(driver: Driver[Any, Any], view: View, holdings: Holdings, records: Records) -> None:
    """At start: what is recorded is held, and what is only marked may be."""
    for claim in view.claims():
        meta = claim.metadata
        if is_of(driver.name, claim):
            restore_one(driver, holdings, claim)
        elif records.marked(claim):
            key: Key = (meta.namespace, meta.name)
            holdings.put(meta.uid, Holding(key, records.marked_for(claim) or None, Stage.CARRIED))
