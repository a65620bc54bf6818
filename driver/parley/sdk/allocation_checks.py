"""Checks of a driver's allocations: the API must accept their records, and drivers must be able to restore them.

The limits are those of `parley.sdk.checks`, and of the fields of a claim's status (`parley.api.models`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from parley.api.names import LABEL, MAX_NAME, SUBDOMAIN
from parley.api.opaque import MAX_DEPTH, escaped, why_unreadable
from parley.negotiation.availability import NodeLabels
from parley.sdk.checks import MAX_DEVICES, MAX_NODES, DriverFault, shown
from parley.sdk.values import Allocation, Device, Request

MAX_DATA_BYTES = 10 * 1024
MAX_LABELS = 16

_LARGEST = 2**63 - 1
_DIGITS = re.compile(rb"[0-9]{19}")
"""What the JSON of a larger integer has."""

_LONGEST_LABEL = 63
_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The name in a label's key, or its value."""
_LABEL = re.compile(LABEL)
_SUBDOMAIN = re.compile(SUBDOMAIN)
_POOL = re.compile(f"{SUBDOMAIN}(/{SUBDOMAIN})*")


def check_allocations(
    driver: str,
    request: Request[Any, Any],
    allocations: Mapping[str, Allocation],
    node: str = "",
    *,
    leaves_data: bool = False,
) -> None:
    """Raises DriverFault unless every claim has an allocation that the API will accept, and that can be restored,
    on that node if one is given. If the driver `leaves_data`, an allocation has to name its nodes: each of them is
    asked to remove the data."""
    if not isinstance(allocations, Mapping):
        text = "it must be a mapping from the names of the request's claims to an Allocation each"
        raise DriverFault(f"driver {driver} allocated {shown(allocations)}; {text}")
    for claim in request.claims:
        allocation = allocations.get(claim.name)
        if allocation is None:
            raise DriverFault(f"driver {driver} allocated nothing for claim {claim.name!r}")
        if fault := _allocation_fault(allocation, node):
            raise DriverFault(f"driver {driver}, claim {claim.name!r}: {fault}")
        if leaves_data and isinstance(allocation.available_on, NodeLabels):
            raise DriverFault(
                f"driver {driver}, claim {claim.name!r}: available_on has labels, and the driver leaves data on "
                "nodes: it has to name them, so that each is asked to remove it"
            )


def as_recorded(request: Request[Any, Any], allocations: Mapping[str, Allocation]) -> dict[str, Allocation]:
    """Copies of checked allocations, their data decoded from JSON as a later read of the record does: so the
    record is what was checked, even if the driver changes its own data afterwards."""
    checked = {claim.name: allocations[claim.name] for claim in request.claims}
    return {name: replace(a, data=_read_back(orjson.dumps(dict(a.data)))) for name, a in checked.items()}


def _read_back(data: bytes) -> dict[str, Any]:
    """The data as the API server has it once it is written by a merge patch: without fields that are null. If the
    allocation in memory had these, it would be taken for another one than that in a record."""
    read: dict[str, Any] = orjson.loads(data)
    return _without_nulls(read) if b"null" in data else read


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _allocation_fault(allocation: object, node: str) -> str:
    if not isinstance(allocation, Allocation):
        return f"allocated is {shown(allocation)}; it must be an Allocation"
    if fault := _place_fault(allocation.available_on, node):
        return fault
    if allocation.reserve is not None and allocation.available_on != ():
        return "it reserves room on a node, and can be used on others"
    return _devices_fault(allocation.devices) or _data_fault(allocation.data)


def _place_fault(on: object, node: str) -> str:
    if on is None:
        return ""
    if isinstance(on, NodeLabels):
        return _labels_fault(on.labels)
    if not isinstance(on, tuple):
        return f"available_on is {shown(on)}; it must be a tuple of nodes, NodeLabels or None"
    if len(on) > MAX_NODES:
        return f"{len(on)} nodes in available_on; at most {MAX_NODES} are allowed"
    strange = next((name for name in on if not _is_name(name, _SUBDOMAIN, MAX_NAME)), None)
    if strange is not None:
        return f"available_on has {shown(strange)}, which is no name of a node"
    return f"available_on has not {node!r}, the node that was selected" if on and node and node not in on else ""


def _is_name(name: object, pattern: re.Pattern[str], longest: int) -> bool:
    return isinstance(name, str) and len(name) <= longest and pattern.fullmatch(name) is not None


def _labels_fault(labels: object) -> str:
    if not isinstance(labels, Mapping):
        return f"available_on has labels {shown(labels)}; they must be a mapping from keys to values"
    if not 0 < len(labels) <= MAX_LABELS:
        return f"{len(labels)} labels in available_on; possible are 1 to {MAX_LABELS}"
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            return f"available_on has {shown(key)}={shown(value)}; keys and values of labels are texts"
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_PART.fullmatch(name) or (slash and not _is_name(prefix, _SUBDOMAIN, MAX_NAME)):
            return f"available_on has {key!r}, which is no key of a label"
        if value and not _LABEL_PART.fullmatch(value):
            return f"available_on has {key}={value!r}, which is no value of a label"
    return ""


def _devices_fault(devices: object) -> str:
    if not isinstance(devices, Sequence) or not all(isinstance(device, Device) for device in devices):
        return f"devices is {shown(devices)}; it must be a tuple of Device"
    if len(devices) > MAX_DEVICES:
        return f"{len(devices)} devices; at most {MAX_DEVICES} are allowed in a claim"
    return next(filter(None, map(_name_fault, devices)), "")


def _name_fault(device: Device) -> str:
    if not _is_name(device.device, _LABEL, _LONGEST_LABEL):
        return f"device name {device.device!r} is not a lower-case DNS label"
    if not _is_name(device.pool, _POOL, len(device.pool)):
        return f"pool name {device.pool!r} is not made of lower-case DNS subdomains"
    if len(device.pool) > MAX_NAME:
        return f"pool name of {len(device.pool)} characters; at most {MAX_NAME} are allowed"
    return ""


def _data_fault(data: object) -> str:
    """Why the data can't be recorded, or can't be read at a restart; "" if it can."""
    if not isinstance(data, Mapping):
        return f"data is {shown(data)}; it must be a mapping"
    try:
        text = orjson.dumps(dict(data))
    except TypeError as error:  # the base class of orjson's own error, also raised for too many nested levels
        return f"data can't be recorded as JSON: {error}"
    if (size := len(escaped(text))) > MAX_DATA_BYTES:
        return f"data of {size} bytes; at most {MAX_DATA_BYTES} are allowed"
    if why_unreadable(read := orjson.loads(text)):
        return f"data nests deeper than {MAX_DEPTH} levels: make it flatter"
    large = next(_large_integers(read), None) if _DIGITS.search(text) else None
    return f"data has {large}, which the API server would round: write it as a string" if large else ""


def _large_integers(value: Any) -> Iterator[int]:
    """The integers of more than 64 bits with their sign: the API server keeps those as floating-point numbers
    (sigs.k8s.io/json)."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _large_integers(inner)
    elif isinstance(value, int) and value > _LARGEST:
        yield value
