"""The informers' transforms: each returns an object as it is cached, without fields that Parley does not read, and
with equal parts of many objects stored once.

A cluster has tens of thousands of pods and devices, most of which Parley only counts. Their labels, annotations
and probes are not read, and their conditions only for whether a scheduler has tried them; the requests of their
containers, or a device's properties, are the same for many. Parts can be shared because cached objects never
change: a change is a new object. Large parts are not shared: they would stay in memory long after their objects
are gone, and users could fill the memory with them. Of oversized lists and maps only a part is kept (`shortened`).
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
from parley.control.objects.pod import SCHEDULED, was_tried
from parley.control.objects.reservation_pod import reserved_on
from parley.negotiation.requests import Amounts, declared_resources, few_resources, is_resized, requested
from parley.sdk.checks import MAX_ENTRIES

T = TypeVar("T")

_REMEMBERED = 4096
"""The number of different parts of one kind that are shared."""

_MOST_ITEMS = 32
"""Lists, containers' requests and devices' properties with more items are large."""

_MOST_PARTS = 256
"""Up to this many containers, requests of them and claims used by them are kept one by one."""

_MOST_CHARACTERS = 256
"""Quantities and attributes of devices with more characters are large."""
_SMALL = 1024
"""Bytes: larger parameters are not shared, or users could fill the memory with them."""

_TRIED = [Condition(SCHEDULED)]
"""The cached conditions of a pod that a scheduler has tried."""

_Amounts = tuple[tuple[str, Quantity], ...]


def pod(whole: Pod, *, seen: bool = False, reservations_in: str = "") -> Pod:
    """The fields of the pod that Parley reads. A pod without claims is only counted, so nothing about its
    placement is kept. While it is resized, it has one container, which requests what the pod counts for; so has a
    pod with very many containers or requests. `seen`: a waiting pod has the fields that drivers see. A reservation
    pod, in the namespace `reservations_in`, keeps its affinity, which names its node."""
    spec, only_counted = whole.spec, not whole.spec.resource_claims
    seen, holds_room = seen and not only_counted and _waits(whole), reserved_on(whole, reservations_in)
    if (spec.node_name and is_resized(whole)) or _is_large(spec):
        spec = _summed(spec, requested(whole))
    cached = Pod(
        metadata=_metadata(
            whole.metadata,
            labels=_labels(whole, seen=seen),
            owner_references=_controllers(whole) if seen else _EMPTY_METADATA.owner_references,
        ),
        spec=PodSpec(
            node_name=intern(spec.node_name),
            scheduler_name=intern(spec.scheduler_name),
            priority=spec.priority,
            preemption_policy=intern(spec.preemption_policy or ""),
            node_selector=_EMPTY_SPEC.node_selector if only_counted else spec.node_selector,
            affinity=None if only_counted and holds_room is None else spec.affinity,
            tolerations=_EMPTY_SPEC.tolerations if only_counted else _shared_list(tuple(spec.tolerations)),
            containers=_containers(spec.containers, images=seen),
            init_containers=_containers(spec.init_containers, images=seen),
            volumes=_EMPTY_SPEC.volumes if only_counted else _with_claim(spec.volumes),
            overhead=spec.overhead or _EMPTY_SPEC.overhead,
            resources=spec.resources,
            resource_claims=_shared_list(tuple(spec.resource_claims)),
            scheduling_gates=_shared_list(few_gates(spec.scheduling_gates)),
            scheduling_group=spec.scheduling_group,
        ),
        status=PodStatus(
            phase=intern(whole.status.phase),
            nominated_node_name=whole.status.nominated_node_name,
            resource_claim_statuses=whole.status.resource_claim_statuses or _EMPTY_STATUS.resource_claim_statuses,
            conditions=_EMPTY_STATUS.conditions if only_counted or not was_tried(whole) else _TRIED,
        ),
    )
    return cached if only_counted and holds_room is None else shortened(cached)


def _with_claim(volumes: Iterable[Volume]) -> list[Volume]:
    """The volumes with a PersistentVolumeClaim, which may tie the pod to nodes."""
    return [it for it in volumes if it.persistent_volume_claim is not None or it.ephemeral is not None]


def volume_claim(whole: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """The PersistentVolumeClaim, which shows the volume that it is bound to, with little metadata."""
    return PersistentVolumeClaim(metadata=_metadata(whole.metadata), spec=whole.spec, status=whole.status)


def volume(whole: PersistentVolume) -> PersistentVolume:
    """The PersistentVolume, which shows where it can be used, with little metadata."""
    return PersistentVolume(metadata=_metadata(whole.metadata), spec=whole.spec)


def device_class(whole: DeviceClass) -> DeviceClass:
    """The DeviceClass, which shows the extended resource that it stands for, with little metadata."""
    return DeviceClass(metadata=_metadata(whole.metadata), spec=whole.spec)


def _waits(whole: Pod) -> bool:
    return whole.status.phase in ("", "Pending")


def _controllers(whole: Pod) -> list[OwnerReference]:
    return [one for one in whole.metadata.owner_references if one.controller]


def _labels(whole: Pod, *, seen: bool) -> dict[str, str]:
    """The pod's labels, if drivers see them, or if a claim may have to be made by them before the pod runs."""
    if not seen and not (_waits(whole) and any(one.resource_claim_name for one in whole.spec.resource_claims)):
        return _EMPTY_METADATA.labels
    return {intern(key): value for key, value in few_labels(whole.metadata.labels).items()}


def _is_large(spec: PodSpec) -> bool:
    """Whether containers, their and the pod's requests, and the claims that they use are too many to keep each."""
    parts = (len(one.requests) + len(one.limits) + len(one.claims) for one in declared_resources(spec))
    return len(spec.init_containers) + len(spec.containers) + sum(parts) > _MOST_PARTS


def _summed(spec: PodSpec, amounts: Amounts) -> PodSpec:
    """The spec with one container that requests the amounts, in thousandths, as any quantity may be given, and
    uses the claims that containers use; other containers only for a few images."""
    containers = (*spec.init_containers, *spec.containers)
    requests: dict[str, Quantity] = {name: f"{amount}m" for name, amount in few_resources(amounts).items()}
    used = {claim.name for container in containers for claim in container.resources.claims}
    claims = [UsedClaim(one.name) for one in spec.resource_claims[:MAX_ENTRIES] if one.name in used]
    images = [*islice(dict.fromkeys(container.image for container in containers), _MOST_ITEMS)] or [""]
    whole = Container(image=images[0], resources=ResourceRequirements(requests=requests, claims=claims))
    others = [Container(image=image) for image in images[1:]]
    return replace(spec, containers=[whole, *others], init_containers=[], overhead={}, resources=None)


_EMPTY_SPEC, _EMPTY_STATUS, _EMPTY_METADATA = PodSpec(), PodStatus(), ObjectMeta()


def _metadata(
    whole: ObjectMeta,
    annotations: dict[str, str] = _EMPTY_METADATA.annotations,
    finalizers: list[str] = _EMPTY_METADATA.finalizers,
    owner_references: list[OwnerReference] = _EMPTY_METADATA.owner_references,
    labels: dict[str, str] = _EMPTY_METADATA.labels,
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


def _shared_list(items: tuple[T, ...]) -> list[T]:
    """A list of these items, the same object for equal items if they are few."""
    return _shared(items) if len(items) <= _MOST_ITEMS else list(items)


@lru_cache(_REMEMBERED)
def _shared(items: tuple[T, ...]) -> list[T]:
    return list(items)


def _containers(whole: Iterable[Container], *, images: bool = False) -> list[Container]:
    """The containers without names, so that those with equal requests can be shared."""
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
    """The fields of a built-in claim that Parley reads; of one that is not its own, only identity and devices.

    Opaque parameters are copied out of the response that they came in, which would stay in memory with them.
    """
    ours = is_mirror(whole)
    return BuiltinClaim(
        metadata=_claim_metadata(whole.metadata),
        spec=_parleys_spec(whole.spec) if ours else _NO_SPEC,
        status=_cached_status(whole.status, ours=ours),
    )


_NO_SPEC, _NO_STATUS = BuiltinClaimSpec(), BuiltinClaimStatus()


def _claim_metadata(whole: ObjectMeta) -> ObjectMeta:
    entry = whole.annotations.get(POD_CLAIM_NAME_ANNOTATION)
    return _metadata(
        whole,
        {POD_CLAIM_NAME_ANNOTATION: intern(entry)} if entry is not None else _EMPTY_METADATA.annotations,
        [*few_finalizers(whole.finalizers)] if whole.finalizers else _EMPTY_METADATA.finalizers,
        [*few_owners(whole.owner_references)] if whole.owner_references else _EMPTY_METADATA.owner_references,
    )


def _parleys_spec(whole: BuiltinClaimSpec) -> BuiltinClaimSpec:
    """The one request, with Parley's own configuration; other configuration is for other drivers."""
    (request,) = whole.devices.requests
    configs = tuple(_parts(c) for c in whole.devices.config if _driver(c) == GROUP)
    small = sum(len(parameters) for *_, parameters in configs) <= _SMALL
    return (_known_asking if small else _asking)(request.name, configs)


def _asking(request: str, configs: "tuple[_Config, ...]") -> BuiltinClaimSpec:
    requests = [DeviceRequest(name=request, exactly=ExactRequest(device_class_name=DEVICE_CLASS))]
    return BuiltinClaimSpec(devices=DeviceClaim(requests=requests, config=[_config(*parts) for parts in configs]))


_known_asking = lru_cache(_REMEMBERED)(_asking)


def _cached_status(whole: BuiltinClaimStatus, *, ours: bool) -> BuiltinClaimStatus:
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
    """The fields of a built-in template that Parley reads: as `mirror`, for the claims generated from it."""
    ours = is_mirror(BuiltinClaim(spec=whole.spec.spec))
    spec = BuiltinTemplateSpec(spec=_parleys_spec(whole.spec.spec) if ours else _NO_SPEC)
    meta = _claim_metadata(whole.metadata)
    if ours and whole.metadata.labels.get(MIRROR_LABEL) == _TEMPLATE[MIRROR_LABEL]:
        meta = replace(meta, labels=_TEMPLATE)
    return BuiltinTemplate(metadata=meta, spec=spec)


def claim(whole: ResourceClaim) -> ResourceClaim:
    """The claim, with shortened metadata."""
    meta = shortened_metadata(whole.metadata)
    return whole if meta is whole.metadata else whole.model_copy(update={"metadata": meta})


def template(whole: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """The template, with shortened metadata."""
    meta = shortened_metadata(whole.metadata)
    return whole if meta is whole.metadata else whole.model_copy(update={"metadata": meta})


def namespace(whole: Namespace) -> Namespace:
    """The namespace, with nothing but its labels."""
    meta = whole.metadata
    return Namespace(
        ObjectMeta(meta.name, uid=meta.uid, resource_version=meta.resource_version, labels=meta.labels)
    )


def resource_slice(whole: ResourceSlice) -> ResourceSlice:
    """The ResourceSlice, with equal properties of devices stored once."""
    return replace(whole, spec=replace(whole.spec, devices=[_device(device) for device in whole.spec.devices]))


def _device(whole: SliceDevice) -> SliceDevice:
    alike = _alike(tuple(whole.attributes.items()), tuple(whole.capacity.items()), tuple(whole.taints))
    return SliceDevice(intern(whole.name), alike.attributes, alike.capacity, alike.taints)


@lru_cache(_REMEMBERED)
def _alike(attributes: tuple, capacity: tuple, taints: tuple) -> SliceDevice:  # type: ignore[type-arg]
    return SliceDevice("", dict(attributes), dict(capacity), list(taints))
