"""The informers' transforms: each returns an object as it is cached, without what nobody reads, and with one copy
of what many objects share.

A cluster has tens of thousands of pods and devices, most of which Parley only counts. Their labels, annotations
and probes are not read, and of their conditions only whether a scheduler has tried them; what their containers
request, or what a device is like, is the same for many. Parts are shared between objects, which never change: a
change is a new object. Large parts are not shared: they would be kept when their objects are long gone, and who
makes objects could fill the memory with them. Of what an object has too many of, a part is kept (`shortened`).
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import TypeVar

from msgspec import Raw
from msgspec.structs import replace

from parley.api.builtin import (
    BuiltinAllocation,
    BuiltinClaim,
    BuiltinClaimSpec,
    BuiltinClaimStatus,
    BuiltinTemplate,
    BuiltinTemplateSpec,
    Condition,
    Container,
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DeviceConfig,
    DeviceRequest,
    ExactRequest,
    Namespace,
    ObjectMeta,
    OpaqueConfig,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Quantity,
    ResourceRequirements,
    ResourceSlice,
    SliceDevice,
    UsedClaim,
    Volume,
)
from parley.api.models import ResourceClaim, ResourceClaimTemplate
from parley.api.names import DEVICE_CLASS, GROUP, MIRROR_LABEL, POD_CLAIM_NAME_ANNOTATION, TEMPLATE_MIRROR
from parley.api.opaque import NOTHING
from parley.api.owners import few_owners
from parley.api.volumes import PersistentVolume, PersistentVolumeClaim
from parley.control.caches.shortened import few_finalizers, few_gates, few_labels, shortened, shortened_metadata
from parley.control.objects.mirror import is_mirror
from parley.control.objects.pod import SCHEDULED, tried
from parley.control.objects.reservation_pod import reserved_on
from parley.negotiation.requests import Amounts, few_resources, is_resized, requested, stated
from parley.sdk.checks import MAX_ENTRIES

T = TypeVar("T")

_REMEMBERED = 4096
"""So many different parts of a kind are shared."""

_MOST_ITEMS = 32
"""A list, a container's requests or a device's properties of more than that are large."""

_MOST_PARTS = 256
"""So many containers, their requests and the claims that they use are kept one by one."""

_MOST_CHARACTERS = 256
"""A quantity or a device's attribute of more than that is large."""
_SMALL = 1024
"""Bytes: larger parameters are not remembered, or users could fill the memory with them."""

_TRIED = [Condition(SCHEDULED)]
"""That a scheduler has tried the pod is all that its conditions tell."""

_Amounts = tuple[tuple[str, Quantity], ...]


def pod(whole: Pod, *, seen: bool = False, reservations_in: str = "") -> Pod:
    """The pod as far as Parley reads it. One without claims is only counted: it needs no node to be found. While
    it is resized, its containers are one that requests what the pod counts for. `seen`: while it waits, with what
    drivers see of it. A reservation pod, in the namespace where they are made, is found by its node. Of very many
    containers, or containers that request very much, the sum is kept."""
    spec, counted = whole.spec, not whole.spec.resource_claims
    seen, holds_room = seen and not counted and _waits(whole), reserved_on(whole, reservations_in)
    if (spec.node_name and is_resized(whole)) or _is_large(spec):
        spec = _counting_for(spec, requested(whole))
    left = Pod(
        metadata=_metadata(
            whole.metadata,
            labels=_labels(whole, seen=seen),
            owner_references=_controllers(whole) if seen else _BARE.owner_references,
        ),
        spec=PodSpec(
            node_name=intern(spec.node_name),
            scheduler_name=intern(spec.scheduler_name),
            priority=spec.priority,
            preemption_policy=intern(spec.preemption_policy or ""),
            node_selector=_NONE.node_selector if counted else spec.node_selector,
            affinity=None if counted and holds_room is None else spec.affinity,
            tolerations=_NONE.tolerations if counted else _one(tuple(spec.tolerations)),
            containers=_containers(spec.containers, images=seen),
            init_containers=_containers(spec.init_containers, images=seen),
            volumes=_NONE.volumes if counted else _claimed(spec.volumes),
            overhead=spec.overhead or _NONE.overhead,
            resources=spec.resources,
            resource_claims=_one(tuple(spec.resource_claims)),
            scheduling_gates=_one(few_gates(spec.scheduling_gates)),
        ),
        status=PodStatus(
            phase=intern(whole.status.phase),
            nominated_node_name=whole.status.nominated_node_name,
            resource_claim_statuses=whole.status.resource_claim_statuses or _UNKNOWN.resource_claim_statuses,
            conditions=_UNKNOWN.conditions if counted or not tried(whole) else _TRIED,
        ),
    )
    return left if counted and holds_room is None else shortened(left)


def _claimed(volumes: Iterable[Volume]) -> list[Volume]:
    """Those with a claim, which may tie the pod to nodes."""
    return [one for one in volumes if one.persistent_volume_claim is not None or one.ephemeral is not None]


def volume_claim(whole: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """Which volume it is bound to."""
    return PersistentVolumeClaim(metadata=_metadata(whole.metadata), spec=whole.spec, status=whole.status)


def volume(whole: PersistentVolume) -> PersistentVolume:
    """Where it can be used."""
    return PersistentVolume(metadata=_metadata(whole.metadata), spec=whole.spec)


def device_class(whole: DeviceClass) -> DeviceClass:
    """Which extended resource it stands for."""
    return DeviceClass(metadata=_metadata(whole.metadata), spec=whole.spec)


def _waits(whole: Pod) -> bool:
    return whole.status.phase in ("", "Pending")


def _controllers(whole: Pod) -> list[OwnerReference]:
    return [one for one in whole.metadata.owner_references if one.controller]


def _labels(whole: Pod, *, seen: bool) -> dict[str, str]:
    """By which a named claim may have to be made, before the pod runs, or which drivers see."""
    if not seen and not (_waits(whole) and any(one.resource_claim_name for one in whole.spec.resource_claims)):
        return _BARE.labels
    return {intern(key): value for key, value in few_labels(whole.metadata.labels).items()}


def _is_large(spec: PodSpec) -> bool:
    """Whether the containers, what they or the pod request and what they use are too many to keep each of them."""
    parts = (len(one.requests) + len(one.limits) + len(one.claims) for one in stated(spec))
    return len(spec.init_containers) + len(spec.containers) + sum(parts) > _MOST_PARTS


def _counting_for(spec: PodSpec, amounts: Amounts) -> PodSpec:
    """In thousandths, as all quantities may be given. With the claims that a container uses, and a few images."""
    containers = (*spec.init_containers, *spec.containers)
    requests: dict[str, Quantity] = {name: f"{amount}m" for name, amount in few_resources(amounts).items()}
    used = {claim.name for container in containers for claim in container.resources.claims}
    claims = [UsedClaim(one.name) for one in spec.resource_claims[:MAX_ENTRIES] if one.name in used]
    images = [*islice(dict.fromkeys(container.image for container in containers), _MOST_ITEMS)] or [""]
    whole = Container(image=images[0], resources=ResourceRequirements(requests=requests, claims=claims))
    others = [Container(image=image) for image in images[1:]]
    return replace(spec, containers=[whole, *others], init_containers=[], overhead={}, resources=None)


_NONE, _UNKNOWN, _BARE = PodSpec(), PodStatus(), ObjectMeta()


def _metadata(
    whole: ObjectMeta,
    annotations: dict[str, str] = _BARE.annotations,
    finalizers: list[str] = _BARE.finalizers,
    owner_references: list[OwnerReference] = _BARE.owner_references,
    labels: dict[str, str] = _BARE.labels,
) -> ObjectMeta:
    return ObjectMeta(
        name=whole.name,
        namespace=intern(whole.namespace),
        uid=whole.uid,
        resource_version=whole.resource_version,
        creation_timestamp=whole.creation_timestamp,
        deletion_timestamp=whole.deletion_timestamp,
        labels=labels,
        annotations=annotations,
        finalizers=finalizers,
        owner_references=owner_references,
    )


def _one(items: tuple[T, ...]) -> list[T]:
    """The one list with these items."""
    return _shared(items) if len(items) <= _MOST_ITEMS else list(items)


@lru_cache(_REMEMBERED)
def _shared(items: tuple[T, ...]) -> list[T]:
    return list(items)


def _containers(whole: Iterable[Container], *, images: bool = False) -> list[Container]:
    """Those that request and use the same, under no name."""
    if images:
        return [
            Container(image=one.image, restart_policy=one.restart_policy, resources=one.resources) for one in whole
        ]
    amounts = tuple(
        (
            c.restart_policy,
            tuple(c.resources.requests.items()),
            tuple(c.resources.limits.items()),
            tuple(claim.name for claim in c.resources.claims),
        )
        for c in whole
    )
    named = [pair for _, requests, limits, _ in amounts for pair in (*requests, *limits)]
    claims = sum(len(claims) for *_, claims in amounts)
    small = max(len(amounts), len(named), claims) <= _MOST_ITEMS and all(map(_is_short, named))
    return _shared_requesting(amounts) if small else _requesting(amounts)


def _is_short(pair: tuple[str, Quantity]) -> bool:
    return len(pair[0]) <= _MOST_CHARACTERS and len(str(pair[1])) <= _MOST_CHARACTERS


def _requesting(containers: tuple[tuple[str, _Amounts, _Amounts, tuple[str, ...]], ...]) -> list[Container]:
    return [
        Container(
            restart_policy=policy,
            resources=ResourceRequirements(dict(requests), dict(limits), [UsedClaim(name) for name in claims]),
        )
        for policy, requests, limits, claims in containers
    ]


_shared_requesting = lru_cache(_REMEMBERED)(_requesting)


def mirror(whole: BuiltinClaim) -> BuiltinClaim:
    """What Parley reads of a built-in claim: of one that is not its own, who it is and which devices it has.

    Opaque parameters are copied out of the answer that they came in, which would stay in memory with them.
    """
    ours = is_mirror(whole)
    return BuiltinClaim(
        metadata=_claim_metadata(whole.metadata),
        spec=_asked(whole.spec) if ours else _NO_SPEC,
        status=_recorded(whole.status, ours=ours),
    )


_NO_SPEC, _NO_STATUS = BuiltinClaimSpec(), BuiltinClaimStatus()


def _claim_metadata(whole: ObjectMeta) -> ObjectMeta:
    entry = whole.annotations.get(POD_CLAIM_NAME_ANNOTATION)
    return _metadata(
        whole,
        {POD_CLAIM_NAME_ANNOTATION: intern(entry)} if entry is not None else _BARE.annotations,
        [*few_finalizers(whole.finalizers)] if whole.finalizers else _BARE.finalizers,
        [*few_owners(whole.owner_references)] if whole.owner_references else _BARE.owner_references,
    )


def _asked(whole: BuiltinClaimSpec) -> BuiltinClaimSpec:
    """What is asked of Parley in the one request; whatever else users wrote there is for other drivers."""
    (request,) = whole.devices.requests
    configs = tuple(_parts(c) for c in whole.devices.config if _driver(c) == GROUP)
    small = sum(len(parameters) for *_, parameters in configs) <= _SMALL
    return (_known_asking if small else _asking)(request.name, configs)


def _asking(request: str, configs: "tuple[_Config, ...]") -> BuiltinClaimSpec:
    requests = [DeviceRequest(name=request, exactly=ExactRequest(device_class_name=DEVICE_CLASS))]
    return BuiltinClaimSpec(devices=DeviceClaim(requests=requests, config=[_config(*parts) for parts in configs]))


_known_asking = lru_cache(_REMEMBERED)(_asking)


def _recorded(whole: BuiltinClaimStatus, *, ours: bool) -> BuiltinClaimStatus:
    allocation = whole.allocation
    if allocation is None:
        return _NO_STATUS
    configs = [_config(*_parts(config)) for config in allocation.devices.config] if ours else []
    return BuiltinClaimStatus(
        allocation=BuiltinAllocation(
            devices=DeviceAllocation(results=allocation.devices.results, config=configs),
            node_selector=allocation.node_selector if ours else None,
            allocation_timestamp=allocation.allocation_timestamp,
        ),
        reserved_for=whole.reserved_for,
        devices=[replace(device, data=device.data.copy()) for device in whole.devices] if ours else [],
    )


_Config = tuple[str, str, tuple[str, ...], bytes]
"""Driver, source, requests and parameters."""


def _driver(config: DeviceConfig) -> str:
    return config.opaque.driver if config.opaque is not None else ""


def _parts(config: DeviceConfig) -> _Config:
    parameters = config.opaque.parameters if config.opaque is not None else NOTHING
    return _driver(config), config.source, tuple(config.requests), bytes(parameters)


def _config(driver: str, source: str, requests: tuple[str, ...], parameters: bytes) -> DeviceConfig:
    opaque = OpaqueConfig(driver=driver, parameters=Raw(parameters)) if driver else None
    return DeviceConfig(requests=list(requests), source=source, opaque=opaque)


_TEMPLATE = {MIRROR_LABEL: TEMPLATE_MIRROR}
"""The label of the built-in templates that Parley makes."""


def template_mirror(whole: BuiltinTemplate) -> BuiltinTemplate:
    """What Parley reads of a built-in template: as `mirror`, for the claims that will be made from it."""
    ours = is_mirror(BuiltinClaim(spec=whole.spec.spec))
    spec = BuiltinTemplateSpec(spec=_asked(whole.spec.spec) if ours else _NO_SPEC)
    meta = _claim_metadata(whole.metadata)
    if ours and whole.metadata.labels.get(MIRROR_LABEL) == _TEMPLATE[MIRROR_LABEL]:
        meta = replace(meta, labels=_TEMPLATE)
    return BuiltinTemplate(metadata=meta, spec=spec)


def claim(whole: ResourceClaim) -> ResourceClaim:
    """The same, with no more of its metadata than is read."""
    meta = shortened_metadata(whole.metadata)
    return whole if meta is whole.metadata else whole.model_copy(update={"metadata": meta})


def template(whole: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """The same, with no more of its metadata than is read."""
    meta = shortened_metadata(whole.metadata)
    return whole if meta is whole.metadata else whole.model_copy(update={"metadata": meta})


def namespace(whole: Namespace) -> Namespace:
    """The same, with nothing but its labels."""
    meta = whole.metadata
    return Namespace(
        ObjectMeta(meta.name, uid=meta.uid, resource_version=meta.resource_version, labels=meta.labels)
    )


def resource_slice(whole: ResourceSlice) -> ResourceSlice:
    """The same, with the properties of devices that are alike in one place."""
    return replace(whole, spec=replace(whole.spec, devices=[_device(device) for device in whole.spec.devices]))


def _device(whole: SliceDevice) -> SliceDevice:
    alike = _alike(tuple(whole.attributes.items()), tuple(whole.capacity.items()), tuple(whole.taints))
    return SliceDevice(intern(whole.name), alike.attributes, alike.capacity, alike.taints)


@lru_cache(_REMEMBERED)
def _alike(attributes: tuple, capacity: tuple, taints: tuple) -> SliceDevice:  # type: ignore[type-arg]
    return SliceDevice("", dict(attributes), dict(capacity), list(taints))
