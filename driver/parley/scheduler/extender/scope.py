"""Which pods are this path's, and what it does not serve: of that the native path's scheduler knows more.

A pod is this path's if it names one of its schedulers, or requests a resource by which an entry in the cluster's
own scheduler is limited (`managedResources`). Its scheduler runs without the DynamicResources plugin, so whatever
needs that plugin would be bound without its device: such pods are refused.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from parley.api.builtin import DeviceClass, Pod
from parley.control.caches.delegated import IMPLICIT
from parley.control.caches.entries import evaluated, has_too_many
from parley.control.claims.podclaims import PodClaim
from parley.negotiation.waiting import Topic

_CORE = ("kubernetes.io/", "requests.")

DEVICE_CLASSES_CHANGED: Topic = ("deviceclasses",)

REMEDY = "leave schedulerName out, so that the cluster's own scheduler places the pod"


@dataclass(frozen=True)
class Scope:
    """The names by which pods come to this path; without any it has none."""

    scheduler_names: frozenset[str] = frozenset()
    managed_resources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.scheduler_names or self.managed_resources)

    def owns(self, pod: Pod) -> bool:
        """Whether the pod is negotiated for by this path and not by the native one."""
        if pod.spec.scheduler_name in self.scheduler_names:
            return True
        return bool(self.managed_resources) and not self.managed_resources.isdisjoint(_requested(pod))


class Backed:
    """The extended resources that DRA drivers stand for, by their DeviceClasses."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A DeviceClass came, changed or went."""
        if old is not None:
            self._classes.pop(old.metadata.name, None)
        if new is not None and new.spec.extended_resource_name:
            self._classes[new.metadata.name] = new.spec.extended_resource_name

    def of(self, pod: Pod) -> Set[str]:
        """Those that the pod requests."""
        wanted = {name for name in _requested(pod) if "/" in name and not name.startswith(_CORE)}
        implicit = {name for name in wanted if name.startswith(IMPLICIT)}
        return implicit | (wanted & set(self._classes.values())) if wanted else wanted


def _requested(pod: Pod) -> Iterator[str]:
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers:
            yield from container.resources.requests
            yield from container.resources.limits


def unserved(pod: Pod, claims: Sequence[PodClaim]) -> str:
    """What of the pod this path can't serve on any node, as a message; "" if nothing. `claims` are Parley's."""
    if pod.spec.scheduling_group is not None:
        return f"spec.schedulingGroup: this scheduler does not place groups: {REMEDY}"
    ours = {claim.entry for claim in claims}
    others = [entry.name for entry in evaluated(pod) if entry.name not in ours]
    if others and not (ours and has_too_many(pod)):
        return f"claims {', '.join(others)} are not Parley's and this scheduler allocates no others: {REMEDY}"
    return ""


def unbacked(names: Iterable[str]) -> str:
    """About extended resources that a node does not have itself."""
    return f"{', '.join(sorted(names))}: a DRA driver allocates it, which this scheduler does not ask: {REMEDY}"


def foreign_topics(pod: Pod, claims: Sequence[PodClaim]) -> tuple[Topic, ...]:
    """Changes that may show that the pod's other claims are Parley's after all."""
    ours, namespace = {claim.entry for claim in claims}, pod.metadata.namespace
    return tuple(
        ("template", namespace, entry.resource_claim_template_name)
        if entry.resource_claim_template_name
        else ("claim", namespace, entry.resource_claim_name or "")
        for entry in evaluated(pod)
        if entry.name not in ours
    )
