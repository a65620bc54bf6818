"""Built-in Kubernetes kinds, each with only the fields that Parley reads.

For decoding only: never send one of these back, what is not listed here would be lost. Writes are patches.
Opaque parameters and data stay bytes, a part of the answer that they came in: `parley.api.opaque` reads them.
Source of the shapes: Kubernetes 1.37 API reference (core/v1, resource.k8s.io/v1, coordination.k8s.io/v1 and
others).
"""

from typing import Any

import msgspec

from parley.api.names import DEVICE_CLASS
from parley.api.opaque import NOTHING

Quantity = str | int | float
"""A Kubernetes quantity as it arrives; see `parley.api.quantity.parse`."""


class Struct(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Base of all: camelCase on the wire, immutable."""


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Namespace(Struct, frozen=True):
    """Nothing but its metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


class NodeSelectorRequirement(Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Struct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[NodeSelectorRequirement] = []


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Struct, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None


class Toleration(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class UsedClaim(Struct, frozen=True):
    """The entry of its pod's `resource_claims` that a container uses, as a whole or a request of it."""

    name: str = ""


class ResourceRequirements(Struct, frozen=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: list[UsedClaim] = []


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: ResourceRequirements = ResourceRequirements()


class PodResourceClaim(Struct, frozen=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(Struct, frozen=True):
    name: str = ""


class VolumeClaimSource(Struct, frozen=True):
    claim_name: str = ""


class EphemeralSource(Struct, frozen=True):
    """The claim is named after pod and volume; nothing else is read of it."""


class Volume(Struct, frozen=True):
    """Of a pod. Only what has a PersistentVolumeClaim ties it to nodes."""

    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class PodSpec(Struct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[Volume] = []
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    resource_claims: list[PodResourceClaim] = []
    scheduling_gates: list[SchedulingGate] = []
    scheduling_group: dict[str, Any] | None = None


class ShortenedPodSpec(PodSpec, frozen=True):
    """Of a pod that asks for more than Parley evaluates, as a cache keeps it; no server sends one.

    `excess` says what is too much to compare with nodes: node selector, affinity, tolerations and volumes are left
    out then. `entries` is how many the pod has in `resource_claims`, if only the first are kept; `more_claims` has
    the claims that the others name, each between two newlines.
    """

    excess: str = ""
    entries: int = 0
    more_claims: str = ""


class PodResourceClaimStatus(Struct, frozen=True):
    name: str
    resource_claim_name: str | None = None


class Condition(Struct, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(Struct, frozen=True):
    """What a container was admitted with, and what it has: others than its spec says while it is resized."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class PodStatus(Struct, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class Pod(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class DeviceTaint(Struct, frozen=True):
    """Without `timeAdded`, which the API server adds to what was published."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, Quantity] = {}
    conditions: list[Condition] = []


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class OpaqueConfig(Struct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = NOTHING


class DeviceConfig(Struct, frozen=True):
    requests: list[str] = []
    source: str = ""
    opaque: OpaqueConfig | None = None


class ExactRequest(Struct, frozen=True):
    device_class_name: str = ""


class DeviceRequest(Struct, frozen=True):
    name: str
    exactly: ExactRequest | None = None


class DeviceClaim(Struct, frozen=True):
    requests: list[DeviceRequest] = []
    config: list[DeviceConfig] = []

    @property
    def is_negotiated(self) -> bool:
        """Whether only Parley may allocate it: its one request names the DeviceClass that must not exist."""
        only = self.requests[0].exactly if len(self.requests) == 1 else None
        return only is not None and only.device_class_name == DEVICE_CLASS


class BuiltinClaimSpec(Struct, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceResult(Struct, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    admin_access: bool = False


class DeviceAllocation(Struct, frozen=True):
    results: list[DeviceResult] = []
    config: list[DeviceConfig] = []


class BuiltinAllocation(Struct, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Struct, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] = []
    data: msgspec.Raw = NOTHING


class BuiltinClaimStatus(Struct, frozen=True):
    allocation: BuiltinAllocation | None = None
    reserved_for: list[ConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class BuiltinClaim(Struct, frozen=True):
    """A `resource.k8s.io/v1` ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinClaimSpec = BuiltinClaimSpec()
    status: BuiltinClaimStatus = BuiltinClaimStatus()


class BuiltinTemplateSpec(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinClaimSpec = BuiltinClaimSpec()


class BuiltinTemplate(Struct, frozen=True):
    """A `resource.k8s.io/v1` ResourceClaimTemplate."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinTemplateSpec = BuiltinTemplateSpec()


class DeviceAttribute(Struct, frozen=True):
    string: str | None = None
    bool_: bool | None = msgspec.field(default=None, name="bool")
    int_: int | None = msgspec.field(default=None, name="int")
    version: str | None = None


class DeviceCapacity(Struct, frozen=True):
    value: Quantity = 0


class SliceDevice(Struct, frozen=True):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    taints: list[DeviceTaint] = []


class Pool(Struct, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Struct, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: Pool = Pool()
    devices: list[SliceDevice] = []


class ResourceSlice(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class LeaseSpec(Struct, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Service(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    addresses: list[str] = []
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(Struct, frozen=True):
    name: str = ""
    port: int | None = None


class EndpointSlice(Struct, frozen=True):
    """A `discovery.k8s.io/v1` EndpointSlice."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: list[Endpoint] = []
    ports: list[EndpointPort] = []


class Event(Struct, frozen=True):
    """An `events.k8s.io/v1` Event."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""
    type: str = ""
    regarding: Any = None


class ConfigMap(Struct, frozen=True):
    """A ConfigMap, whose values are texts."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class DeviceClassSpec(Struct, frozen=True):
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
