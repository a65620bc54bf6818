"""Entries of a built-in claim's `status.devices`, with the conditions that schedulers wait for. Pure."""

from collections.abc import Iterator
from typing import Any

from parley.api.builtin import BuiltinClaim


def device_status(driver: str, pool: str, device: str, *conditions: dict[str, str]) -> dict[str, Any]:
    """The entry of one device, with these conditions."""
    return {"driver": driver, "pool": pool, "device": device, "conditions": list(conditions)}


def holds(condition: str, reason: str, message: str, now: str) -> dict[str, str]:
    """A condition of that type that is True since `now` (RFC 3339)."""
    return {"type": condition, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def true_conditions(claim: BuiltinClaim) -> Iterator[str]:
    """The types of the conditions that are True of any device."""
    for device in claim.status.devices:
        yield from (condition.type for condition in device.conditions if condition.status == "True")
