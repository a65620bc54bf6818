"""Validation of built-in `resource.k8s.io/v1` claims: those rules that Parley could violate.

Source: pkg/apis/resource/validation/validation.go (1.37), the rest of which is left out.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from parley.api.opaque import escaped
from parley.kube.memory.errors import Fault

Json = dict[str, Any]

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_IMMUTABLE = "field is immutable"
_MAX_USERS = 256
_MAX_RESULTS = 32
_MAX_CONFIGS = 64
_MAX_OPAQUE = 10 * 1024
_MAX_DRIVER = 63


def rules(old: Json | None, new: Json) -> Sequence[Fault]:
    """The faults of a new claim, or of a changed one compared with the old one."""
    return [*_spec(new), *(_changes(old, new) if old is not None else ()), *_status(old or {}, new)]


def without_deallocated(old: Json, new: Json) -> Json:
    """The new claim without entries of `status.devices` for devices that the change deallocates."""
    devices = (new.get("status") or {}).get("devices")
    gone = _allocated_devices(_allocation(old)) - _allocated_devices(_allocation(new))
    if not devices or not gone:
        return new
    status = {name: value for name, value in new["status"].items() if name != "devices"}
    if kept := [device for device in devices if _identity(device) not in gone]:
        status["devices"] = kept
    return {**new, "status": status}


def template_rules(old: Json | None, new: Json) -> Sequence[Fault]:
    """The faults of a template: its spec is immutable."""
    return _unchanged("spec", old["spec"], new.get("spec")) if old is not None else ()


def _unchanged(field: str, before: Any, after: Any) -> list[Fault]:
    if before == after:
        return []
    return [Fault(field, f"Invalid value: {orjson.dumps(after).decode()}: {_IMMUTABLE}")]


def _spec(new: Json) -> Iterator[Fault]:
    for index, request in enumerate(_requests(new)):
        where = f"spec.devices.requests[{index}]"
        if not _LABEL.match(request.get("name", "")):
            yield Fault(f"{where}.name", f'Invalid value: "{request.get("name", "")}": not a lower-case DNS label')
        if not request.get("exactly") and not request.get("firstAvailable"):
            yield Fault(where, "Required value: exactly one of `exactly` or `firstAvailable` is required")


def _changes(old: Json, new: Json) -> Iterator[Fault]:
    yield from _unchanged("spec", old.get("spec", {}), new.get("spec", {}))
    before, after = _allocation(old), _allocation(new)
    if before is not None and after is not None and before != after:
        yield Fault("status.allocation", "Invalid value: null: field cannot be modified once set")


def _status(old: Json, new: Json) -> Iterator[Fault]:
    status = new.get("status") or {}
    users = status.get("reservedFor") or []
    allocation = _allocation(new)
    if users and allocation is None:
        yield Fault("status.reservedFor", "Forbidden: may not be specified when `allocated` is not set")
    if len(users) > _MAX_USERS:
        yield Fault("status.reservedFor", f"Too many: {len(users)}: must have at most {_MAX_USERS} items")
    yield from _users(users)
    if new["metadata"].get("deletionTimestamp"):
        yield from _no_new_users((old.get("status") or {}).get("reservedFor") or [], users)
    if allocation is not None and _allocation(old) is None:
        yield from _allocated(new, allocation)
    yield from _devices(status.get("devices") or [], allocation)


def _users(users: list[Json]) -> Iterator[Fault]:
    seen = set()
    for index, user in enumerate(users):
        for name in ("resource", "name", "uid"):
            if not user.get(name):
                yield Fault(f"status.reservedFor[{index}].{name}", "Required value")
        if user.get("uid") in seen:
            yield Fault(f"status.reservedFor[{index}]", f'Duplicate value: "{user["uid"]}"')
        seen.add(user.get("uid"))


def _no_new_users(before: list[Json], after: list[Json]) -> Iterator[Fault]:
    if {user.get("uid") for user in after} - {user.get("uid") for user in before}:
        why = (
            "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        )
        yield Fault("status.reservedFor", why)


def _allocated(claim: Json, allocation: Json) -> Iterator[Fault]:
    devices = allocation.get("devices") or {}
    results = devices.get("results") or []
    where = "status.allocation.devices"
    if len(results) > _MAX_RESULTS:
        yield Fault(f"{where}.results", f"Too many: {len(results)}: must have at most {_MAX_RESULTS} items")
    names = {request.get("name") for request in _requests(claim)}
    for index, result in enumerate(results):
        yield from _result(f"{where}.results[{index}]", result, names)
    configs = devices.get("config") or []
    if len(configs) > _MAX_CONFIGS:
        yield Fault(f"{where}.config", f"Too many: {len(configs)}: must have at most {_MAX_CONFIGS} items")
    for index, config in enumerate(configs):
        yield from _config(f"{where}.config[{index}]", config, names)


def _result(where: str, result: Json, names: set[Any]) -> Iterator[Fault]:
    request = result.get("request", "")
    if request.split("/")[0] not in names:
        yield Fault(f"{where}.request", f'Invalid value: "{request}": must be the name of a request in the claim')
    yield from _names(where, result)


def _names(where: str, device: Json) -> Iterator[Fault]:
    driver, pool, name = (device.get(part, "") for part in ("driver", "pool", "device"))
    if not _SUBDOMAIN.match(driver) or len(driver) > _MAX_DRIVER:
        yield Fault(f"{where}.driver", f'Invalid value: "{driver}": not a DNS subdomain of at most 63 characters')
    if not all(_SUBDOMAIN.match(part) for part in pool.split("/")):
        yield Fault(f"{where}.pool", f'Invalid value: "{pool}": not lower-case DNS subdomains joined by "/"')
    if not _LABEL.match(name):
        yield Fault(f"{where}.device", f'Invalid value: "{name}": not a lower-case DNS label')


def _config(where: str, config: Json, names: set[Any]) -> Iterator[Fault]:
    source = config.get("source")
    if not source:
        yield Fault(f"{where}.source", "Required value")
    elif source not in ("FromClass", "FromClaim"):
        why = f'Unsupported value: "{source}": supported values: "FromClaim", "FromClass"'
        yield Fault(f"{where}.source", why)
    for index, request in enumerate(config.get("requests") or []):
        if request.split("/")[0] not in names:
            yield Fault(
                f"{where}.requests[{index}]",
                f'Invalid value: "{request}": must be the name of a request in the claim',
            )
    opaque = config.get("opaque")
    if opaque is None:
        yield Fault(f"{where}.opaque", "Required value")
        return
    parameters = opaque.get("parameters")
    if not _is_object(parameters):
        yield Fault(f"{where}.opaque.parameters", "Invalid value: parameters must be a valid JSON object")
    elif len(escaped(orjson.dumps(parameters))) > _MAX_OPAQUE:
        yield Fault(f"{where}.opaque.parameters", f"Too long: may not be more than {_MAX_OPAQUE} bytes")


def _is_object(parameters: Any) -> bool:
    """Whether it is a JSON object. The server does not validate its content."""
    if isinstance(parameters, orjson.Fragment):
        return orjson.dumps(parameters).lstrip().startswith(b"{")
    return isinstance(parameters, dict)


def _devices(devices: list[Json], allocation: Json | None) -> Iterator[Fault]:
    allocated = _allocated_devices(allocation)
    for index, device in enumerate(devices):
        where = f"status.devices[{index}]"
        if _identity(device) not in allocated:
            yield Fault(where, f"Invalid value: {_identity(device)}: must be an allocated device in the claim")
        if len(escaped(orjson.dumps(device.get("data")))) > _MAX_OPAQUE:
            yield Fault(f"{where}.data", f"Too long: may not be more than {_MAX_OPAQUE} bytes")


def _allocated_devices(allocation: Json | None) -> set[str]:
    results = ((allocation or {}).get("devices") or {}).get("results") or []
    return {_identity(result) for result in results}


def _identity(device: Json) -> str:
    parts = [device.get(part, "") for part in ("driver", "pool", "device", "shareID")]
    return "/".join(part for part in parts if part)


def _requests(claim: Json) -> list[Json]:
    return ((claim.get("spec") or {}).get("devices") or {}).get("requests") or []


def _allocation(claim: Json) -> Json | None:
    return (claim.get("status") or {}).get("allocation")
