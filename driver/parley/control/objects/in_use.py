"""Tells schedulers that an exclusive named claim is in use, so that they do not try other pods in vain. Pure.

Built-in resource allocation knows no exclusive claims. A scheduler finds a node for the next pod, is refused when
it reserves the claim, and backs off for up to 10 s after such an error, whatever happens meanwhile. So the
allocation has a binding failure condition, which is True while a bound pod uses the claim and others wait for it.
To the scheduler the claim is not available on its node then, and the end of the allocation makes it try again at
once: isClaimReadyForBinding and Filter in pkg/scheduler/framework/plugins/dynamicresources (v1.37.0). While the
pod that uses the claim is not bound the condition is never True: it would keep that pod out. Where it is True a
policy keeps the scheduler from clearing the allocation, as it does with a claim that it finds unavailable and
reserved for nobody, which it is when the reservation was lost (`mirrors.yaml`).
"""

from collections.abc import Mapping
from typing import Any

from parley.api.builtin import BuiltinClaim, DeviceResult
from parley.api.names import CONDITION_IN_USE, CONDITION_RECORDED
from parley.control.objects.device_status import device_status, holds, true_conditions
from parley.sdk import PodReference


def with_condition(allocation: Mapping[str, Any], now: str) -> dict[str, Any]:
    """`allocation` and `devices` of a status that is to be written, with the condition, which is not True: a pod
    may be bound. An allocation without a device to bear it stays as it is."""
    devices = allocation["devices"]
    if not devices["results"]:
        return {"allocation": dict(allocation), "devices": []}
    first, *others = devices["results"]
    conditions = {"bindingConditions": [CONDITION_RECORDED], "bindingFailureConditions": [CONDITION_IN_USE]}
    results = [{**first, **conditions}, *others]
    status = device_status(first["driver"], first["pool"], first["device"], _recorded(now))
    return {"allocation": {**allocation, "devices": {**devices, "results": results}}, "devices": [status]}


def can_say(claim: BuiltinClaim) -> bool:
    """Whether the claim's allocation has the condition, and it is not True yet."""
    return _bearer(claim) is not None and not is_said(claim)


def is_said(claim: BuiltinClaim) -> bool:
    """Whether schedulers take the claim for in use."""
    return CONDITION_IN_USE in true_conditions(claim)


def says_in_use(claim: BuiltinClaim, user: PodReference, now: str) -> list[dict[str, Any]]:
    """`status.devices` of a claim that `can_say` so: other pods can't be bound until the allocation is cleared."""
    bearer = _bearer(claim)
    assert bearer is not None
    said = holds(CONDITION_IN_USE, "InUse", f"pod {user.namespace}/{user.name} uses the claim", now)
    return [device_status(bearer.driver, bearer.pool, bearer.device, _recorded(now), said)]


def _bearer(claim: BuiltinClaim) -> DeviceResult | None:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return next((result for result in results if CONDITION_IN_USE in result.binding_failure_conditions), None)


def _recorded(now: str) -> dict[str, str]:
    return holds(CONDITION_RECORDED, "Recorded", "allocated and reserved by Parley", now)
