"""Mirrors, the built-in objects that stand for Parley's: composes and reads them. Pure.

What a mirror requests is in `class_request`. Its allocation has one result per device (or a placeholder, if there
is none to name) and the driver's handle.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parley.api.builtin import BuiltinAllocation, BuiltinClaim, BuiltinTemplate, NodeSelector, Pod
from parley.api.models import ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.api.names import (
    API_VERSION,
    CONDITION_ALLOCATED,
    CONDITION_DECLINED,
    FINALIZER,
    GROUP,
    MIRROR_LABEL,
    SHAREABLE_REQUEST,
    TEMPLATE_MIRROR,
)
from parley.api.opaque import read
from parley.api.selectors import named_by, node_selector
from parley.control.objects.class_request import claim_spec, opaque_object
from parley.control.objects.device_status import device_status, holds, true_conditions
from parley.negotiation.availability import AvailableOn, NodeLabels, read_selector, selector_body, words
from parley.negotiation.nowhere import where
from parley.sdk import Allocation, Device, PodReference

PLACEHOLDER = Device("parley.dev", "negotiated")
"""The device of an allocation's only result if its devices are not known yet, or if it has none to name."""


_UNITS = "units"
"""The field with the units in Parley's own opaque configuration of an allocation."""

MAX_USERS = 256
"""The number of pods that `status.reservedFor` of a claim may have."""


def template_mirror(template: ResourceClaimTemplate) -> dict[str, Any]:
    """The built-in template from which Kubernetes generates the pods' claims. Each serves one pod."""
    meta, inner = template.metadata, template.spec.metadata
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {MIRROR_LABEL: TEMPLATE_MIRROR},
            "ownerReferences": [_owner("ResourceClaimTemplate", meta.name, meta.uid)],
        },
        "spec": {
            "metadata": {
                "labels": {**inner.labels, MIRROR_LABEL: "generated"},
                "annotations": dict(inner.annotations),
            },
            "spec": claim_spec(template.spec.spec, shareable=False),
        },
    }


def claim_mirror(claim: ResourceClaim, *, shareable: bool) -> dict[str, Any]:
    """The built-in claim that pods name when they name a Parley claim."""
    meta = claim.metadata
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {MIRROR_LABEL: "named"},
            "finalizers": [FINALIZER],
            "ownerReferences": [_owner("ResourceClaim", meta.name, meta.uid)],
        },
        "spec": claim_spec(claim.spec, shareable=shareable),
    }


def _owner(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}


def is_mirror(claim: BuiltinClaim) -> bool:
    """Whether only Parley may allocate the claim, by its request, which is immutable."""
    return claim.spec.devices.is_negotiated


def is_template_mirror(template: BuiltinTemplate) -> bool:
    """Whether Parley made the built-in template, even if it has lost its owner since. A user's own template does
    not have Parley's label."""
    meta = template.metadata
    if any(owner.api_version == API_VERSION for owner in meta.owner_references):
        return True
    return meta.labels.get(MIRROR_LABEL) == TEMPLATE_MIRROR and is_mirror(BuiltinClaim(spec=template.spec.spec))


def is_shareable(claim: BuiltinClaim) -> bool:
    """Whether several pods may use the mirror, by its request's name. Never if it belongs to a pod, or if the
    claim is no mirror."""
    return (
        is_mirror(claim) and claim.spec.devices.requests[0].name == SHAREABLE_REQUEST and owner_pod(claim) is None
    )


def may_be_shared(claim: BuiltinClaim | None, class_: ResourceClass | None) -> bool:
    """Whether several pods may use the mirror's allocation: both its class, if it exists, as it is now, and the
    mirror, which schedulers and policies go by, have to say so."""
    return claim is not None and is_shareable(claim) and (class_ is None or class_.shareable)


def owner_pod(claim: BuiltinClaim) -> PodReference | None:
    """The pod that a generated claim belongs to; None for other claims."""
    for owner in claim.metadata.owner_references:
        if owner.controller and (owner.api_version, owner.kind) == ("v1", "Pod"):
            return PodReference(claim.metadata.namespace, owner.name, owner.uid)
    return None


def owner_pod_uid(claim: BuiltinClaim) -> str:
    """The UID of the pod that a generated claim belongs to; "" for other claims."""
    owner = owner_pod(claim)
    return owner.uid if owner is not None else ""


def named_claim_uid(mirror: BuiltinClaim) -> str:
    """The UID of the named claim that the mirror was created for, even if that is gone; "" if there was none."""
    owners = mirror.metadata.owner_references
    found = (owner.uid for owner in owners if (owner.api_version, owner.kind) == (API_VERSION, "ResourceClaim"))
    return next(found, "")


def stands_for_another(mirror: BuiltinClaim, uid: str) -> bool:
    """Whether the mirror was created for another named claim than the one of that UID, or is no mirror: users can
    name any owner in their own built-in claims."""
    return not is_mirror(mirror) or named_claim_uid(mirror) not in ("", uid)


def is_older(mirror: BuiltinClaim, pod: Pod) -> bool:
    """Whether the mirror is older than the pod, to the second: then the pod never used an earlier claim of the
    name."""
    return (mirror.metadata.creation_timestamp or "") < (pod.metadata.creation_timestamp or "")


def owned_by(mirror: BuiltinClaim | BuiltinTemplate, uid: str) -> bool:
    """Whether the mirror stands for the Parley object of that UID."""
    return any(owner.uid == uid for owner in mirror.metadata.owner_references)


def allocation_body(
    claim: BuiltinClaim,
    driver: str,
    allocation: Allocation,
    nodes: Sequence[str] | NodeLabels | NodeSelector | None,
    now: str,
    *,
    node_part: bool,
    units: int | None = None,
) -> dict[str, Any]:
    """The `status.allocation` for these nodes, or for all (None); `units` are recorded if they are given.

    The kubelet calls the plugin of each driver that has a result: without a node part there is none. `now` (RFC
    3339) must be set by the writer: when the scheduler reserves the claim and has to add it itself, it fails for
    ever, because an allocation can't be changed.
    """
    request = claim.spec.devices.requests[0].name
    body: dict[str, Any] = {
        "devices": {
            "results": [
                {"request": request, "driver": driver, "pool": device.pool, "device": device.device}
                for device in ((allocation.devices or (PLACEHOLDER,)) if node_part else ())
            ],
            "config": [_config(request, driver, dict(allocation.data)), *_units_config(request, units)],
        },
        "allocationTimestamp": now,
    }
    return body if nodes is None else {**body, "nodeSelector": selector_body(nodes)}


def _config(request: str, owner: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"source": "FromClaim", "requests": [request], "opaque": {"driver": owner, "parameters": data}}


def _units_config(request: str, units: int | None) -> list[dict[str, Any]]:
    return [_config(request, GROUP, {_UNITS: units})] if units is not None else []


def offer_body(
    claim: BuiltinClaim, driver: str, nodes: Iterable[str], now: str, *, units: int | None = None
) -> dict[str, Any]:
    """The `status.allocation` that offers nodes: the scheduler chooses one and waits for the conditions. `units`
    are recorded if they are given: an allocation can't be changed afterwards."""
    request = claim.spec.devices.requests[0].name
    result = {
        "request": request,
        "driver": driver,
        "pool": PLACEHOLDER.pool,
        "device": PLACEHOLDER.device,
        "bindingConditions": [CONDITION_ALLOCATED],
        "bindingFailureConditions": [CONDITION_DECLINED],
    }
    config = _units_config(request, units)
    return {
        "devices": {"results": [result], **({"config": config} if config else {})},
        "nodeSelector": node_selector(nodes),
        "allocationTimestamp": now,
    }


def fulfilled_body(driver: str, allocation: Allocation, node: str, now: str) -> list[dict[str, Any]]:
    """The `status.devices` that ends an offer: allocated on the node, with the handle."""
    return [_offer_status(driver, CONDITION_ALLOCATED, "Allocated", f"on node {node}", now, dict(allocation.data))]


def declined_body(driver: str, why: str, now: str) -> list[dict[str, Any]]:
    """The `status.devices` that ends an offer: declined, so that the scheduler deallocates the claim."""
    return [_offer_status(driver, CONDITION_DECLINED, "Declined", why, now, None)]


def _offer_status(
    driver: str, condition: str, reason: str, message: str, now: str, data: dict[str, Any] | None
) -> dict[str, Any]:
    ended = holds(condition, reason, message, now)
    status = device_status(driver, PLACEHOLDER.pool, PLACEHOLDER.device, ended)
    return {**status, "data": data} if data is not None else status


def is_offer(allocation: BuiltinAllocation) -> bool:
    """Whether the allocation only offers nodes."""
    return any(CONDITION_ALLOCATED in result.binding_conditions for result in allocation.devices.results)


def offer_stands(claim: BuiltinClaim) -> bool:
    """Whether the claim offers nodes, and no driver has allocated for it."""
    allocation = claim.status.allocation
    return allocation is not None and is_offer(allocation) and offer_ended(claim) != CONDITION_ALLOCATED


def offer_ended(claim: BuiltinClaim) -> str:
    """The condition that ended the offer: allocated, declined, or "" while it stands."""
    ends = (CONDITION_ALLOCATED, CONDITION_DECLINED)
    return next((condition for condition in true_conditions(claim) if condition in ends), "")


def nodes_of(allocation: BuiltinAllocation) -> tuple[str, ...]:
    """The nodes that the allocation's selector names."""
    return named_by(allocation.node_selector)


def allocated(claim: BuiltinClaim, driver: str) -> Allocation | None:
    """The driver's allocation in the claim's status; None if there is none, or nothing definite yet."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    if is_offer(allocation):
        found = (read(device.data) for device in claim.status.devices if device.driver == driver)
        data = next((value for value in found if isinstance(value, dict)), None)
    else:
        data = opaque_object(allocation.devices.config, driver)
    if data is None:
        return None
    results = [Device(r.pool, r.device) for r in allocation.devices.results if r.driver == driver]
    named = tuple(device for device in results if device != PLACEHOLDER)
    return Allocation(named or _devices(data), data, _available_on(allocation))


def counted(claim: BuiltinClaim, driver: str) -> Allocation | None:
    """The allocation by which the claim counts for the driver; None if there is none, or nothing definite yet.

    If the driver's handle can't be read, the devices that the allocation names count as taken whole.
    """
    allocation, found = claim.status.allocation, allocated(claim, driver)
    if found is not None or allocation is None or is_offer(allocation):
        return found
    results = [Device(r.pool, r.device) for r in allocation.devices.results if r.driver == driver]
    named = tuple(device for device in results if device != PLACEHOLDER)
    return Allocation(named, {}, _available_on(allocation)) if named else None


def recorded_units(claim: BuiltinClaim) -> int | None:
    """The units recorded with the allocation, which count for its class's limits; None if there are none."""
    allocation = claim.status.allocation
    found = opaque_object(allocation.devices.config, GROUP) if allocation is not None else None
    units = (found or {}).get(_UNITS)
    return units if isinstance(units, int) and units >= 0 else None


def _available_on(allocation: BuiltinAllocation) -> AvailableOn:
    if allocation.node_selector is None:
        return None
    found = () if is_offer(allocation) else read_selector(allocation.node_selector)
    return found if not isinstance(found, tuple) or len(found) > 1 else ()


def whereabouts(allocation: BuiltinAllocation) -> str:
    """Where the allocation can be used, in words."""
    if allocation.node_selector is None:
        return where(None)
    found = read_selector(allocation.node_selector)
    return where(found) if isinstance(found, tuple) else f"allocated on {words(found)}"


def _devices(data: Mapping[str, Any]) -> tuple[Device, ...]:
    """The devices that the handle names; only the driver understands the rest of it."""
    listed = data.get("devices")
    entries = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    return tuple(Device(str(d["pool"]), str(d["device"])) for d in entries if "pool" in d and "device" in d)


def driver_of(allocation: BuiltinAllocation) -> str:
    """The driver that made the allocation. Without a node part there is no result, but always a configuration."""
    if allocation.devices.results:
        return allocation.devices.results[0].driver
    return next((c.opaque.driver for c in allocation.devices.config if c.opaque is not None), "")


def can_never_reserve(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether the pod, which others bound and which has not started, can't get the claim any more.

    A claim that is being deleted takes no new reservation, and no kubelet prepares one without: see
    validateResourceClaimStatusUpdate in k8s.io/kubernetes/pkg/apis/resource/validation/validation.go and
    prepareResources in pkg/kubelet/cm/dra/manager.go (v1.37.0).
    """
    if not claim.metadata.deletion_timestamp or not pod.spec.node_name or pod.status.phase != "Pending":
        return False
    return all(user.uid != pod.metadata.uid for user in claim.status.reserved_for)


def consumer(pod: PodReference) -> dict[str, str]:
    """An entry of `status.reservedFor`."""
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}
