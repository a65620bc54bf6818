"""Pods: what they request, where they may run, and the state of their claims and containers."""

from typing import Any

from parley.api.builtin.meta import Condition, NodeSelector, ObjectMeta, Quantity, Struct


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
