"""Decides which pods belong to the extender path, and which of them it can't serve.

A pod belongs to it if it names one of its schedulers, or requests one of the resources (`managedResources`) of the
extender's entry in the cluster's own scheduler. Such a scheduler runs without the DynamicResources plugin. Pods
that need that plugin would be bound without their devices: they are rejected.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from parley.api.builtin import DeviceClass, Pod
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.delegated import IMPLICIT
from parley.control.caches.entries import evaluated, has_too_many
from parley.control.claims.podclaims import PodClaim
from parley.negotiation.waiting import Topic

_CORE = ("kubernetes.io/", "requests.")

DEVICE_CLASSES_CHANGED: Topic = ("deviceclasses",)

REMEDY = "leave schedulerName out, so that the cluster's own scheduler places the pod"


@dataclass(frozen=True)
class Scope:
    """The schedulers and resources whose pods belong to the extender path; without any there is no such path."""

    scheduler_names: frozenset[str] = frozenset()
    managed_resources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.scheduler_names or self.managed_resources)

    def owns(self, pod: Pod) -> bool:
        """Whether the pod belongs to the extender path and not to the native one."""
        if pod.spec.scheduler_name in self.scheduler_names:
            return True
        return bool(self.managed_resources) and not self.managed_resources.isdisjoint(_requested(pod))

    def why_not(self, pod: Pod) -> str:
        """Why the pod does not belong to the extender path, "" if it does."""
        name = pod.spec.scheduler_name
        if self.owns(pod):
            return ""
        return (
            f"the pod is of scheduler {name}, for whose pods Parley does not answer: to have it bind them, start "
            f"the controller with --scheduler-name {name}"
        )

    def why_not_placed(self, pod: Pod) -> str:
        """Why a scheduler's call can't place the pod, "" if it can."""
        return self.why_not(pod) or ("the pod is bound already" if pod.spec.node_name else "")


class DraResources:
    """The extended resources that DRA drivers allocate, according to the DeviceClasses."""

    def __init__(self, cluster: ClusterCache) -> None:
        self._cluster = cluster
        self._classes: dict[str, str] = {}

    def changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """Event handler: a DeviceClass was added, changed or deleted."""
        if old is not None:
            self._classes.pop(old.metadata.name, None)
        if new is not None and new.spec.extended_resource_name:
            self._classes[new.metadata.name] = new.spec.extended_resource_name

    def of(self, pod: Pod) -> Set[str]:
        """The ones that the pod requests."""
        wanted = {name for name in _requested(pod) if "/" in name and not name.startswith(_CORE)}
        implicit = {name for name in wanted if name.startswith(IMPLICIT)}
        return implicit | (wanted & set(self._classes.values())) if wanted else wanted

    def nodes_with(self, pod: Pod, nodes: Sequence[str]) -> Sequence[str]:
        """The nodes that themselves have the ones that the pod requests."""
        wanted = self.of(pod)
        if not wanted:
            return nodes
        return [node for node in nodes if wanted <= self._cluster.allocatable(node).keys()]


def _requested(pod: Pod) -> Iterator[str]:
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers:
            yield from container.resources.requests
            yield from container.resources.limits


def unsupported(pod: Pod, claims: Sequence[PodClaim]) -> str:
    """Why the extender path can't serve the pod on any node, "" if it can. `claims` are those that are
    Parley's."""
    if pod.spec.scheduling_group is not None:
        return f"spec.schedulingGroup: this scheduler does not place groups: {REMEDY}"
    ours = {claim.entry for claim in claims}
    others = [entry.name for entry in evaluated(pod) if entry.name not in ours]
    if others and not (ours and has_too_many(pod)):
        return f"claims {', '.join(others)} are not Parley's and this scheduler allocates no others: {REMEDY}"
    return ""


def dra_only(names: Iterable[str]) -> str:
    """The message about extended resources that nodes don't have themselves, but only by DRA drivers."""
    return f"{', '.join(sorted(names))}: a DRA driver allocates it, which this scheduler does not ask: {REMEDY}"


def foreign_topics(pod: Pod, claims: Sequence[PodClaim]) -> tuple[Topic, ...]:
    """The topics whose change may show that the pod's other claims are Parley's after all."""
    ours, namespace = {claim.entry for claim in claims}, pod.metadata.namespace
    return tuple(
        ("template", namespace, entry.resource_claim_template_name)
        if entry.resource_claim_template_name
        else ("claim", namespace, entry.resource_claim_name or "")
        for entry in evaluated(pod)
        if entry.name not in ours
    )
