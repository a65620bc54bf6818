"""The condition that shows schedulers that an exclusive named claim is in use, so that they try no other pods.
Pure.

Built-in resource allocation has no exclusive claims. A scheduler finds a node for the next pod, is refused when it
reserves the claim, and backs off for up to 10 s after such an error, whatever happens meanwhile. So the allocation
has a binding failure condition, which is True while a bound pod uses the claim and others wait for it. To the
scheduler the claim is not available on its node then, and the end of the allocation makes it try again at once:
isClaimReadyForBinding and Filter in pkg/scheduler/framework/plugins/dynamicresources (v1.37.0). While the pod that
uses the claim is not bound the condition is never True: it would keep that pod out. Where it is True a policy
keeps the scheduler from clearing the allocation, as it does with a claim that it finds unavailable and reserved
for nobody, which it is when the reservation was lost (`mirrors.yaml`).
"""

from collections.abc import Mapping
from typing import Any

from parley.api.builtin import BuiltinClaim, DeviceResult
from parley.api.names import CONDITION_IN_USE, CONDITION_RECORDED
from parley.control.objects.device_status import device_status, holds, true_conditions
from parley.sdk import PodReference


def with_condition(allocation: Mapping[str, Any], now: str) -> dict[str, Any]:
    """`allocation` and `devices` of a status to be written, with the condition, which is not True yet, so that a
    pod can be bound. An allocation without devices, which could have the condition, stays as it is."""
    devices = allocation["devices"]
    if not devices["results"]:
        return {"allocation": dict(allocation), "devices": []}
    first, *others = devices["results"]
    conditions = {"bindingConditions": [CONDITION_RECORDED], "bindingFailureConditions": [CONDITION_IN_USE]}
    results = [{**first, **conditions}, *others]
    status = device_status(first["driver"], first["pool"], first["device"], _recorded(now))
    return {"allocation": {**allocation, "devices": {**devices, "results": results}}, "devices": [status]}


def can_show_in_use(claim: BuiltinClaim) -> bool:
    """Whether the claim's allocation has the condition, and it is not True yet."""
    return _device_with_condition(claim) is not None and not shows_in_use(claim)


def shows_in_use(claim: BuiltinClaim) -> bool:
    """Whether the condition is True, so that schedulers treat the claim as in use."""
    return CONDITION_IN_USE in true_conditions(claim)


def in_use_devices(claim: BuiltinClaim, user: PodReference, now: str) -> list[dict[str, Any]]:
    """`status.devices` with the condition True: no other pod is bound until the allocation is cleared."""
    device = _device_with_condition(claim)
    assert device is not None
    in_use = holds(CONDITION_IN_USE, "InUse", f"pod {user.namespace}/{user.name} uses the claim", now)
    return [device_status(device.driver, device.pool, device.device, _recorded(now), in_use)]


def _device_with_condition(claim: BuiltinClaim) -> DeviceResult | None:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return next((result for result in results if CONDITION_IN_USE in result.binding_failure_conditions), None)


def _recorded(now: str) -> dict[str, str]:
    return holds(CONDITION_RECORDED, "Recorded", "allocated and reserved by Parley", now)
