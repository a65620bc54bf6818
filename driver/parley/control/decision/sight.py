"""The view that embedded drivers have of the pod that asks, and of the cluster's nodes, from the caches."""

from collections import Counter
from collections.abc import Mapping, Sequence

from parley.api.builtin import Pod
from parley.control.decision.demand import Drivers
from parley.control.objects.pod import priority
from parley.control.room import reserved
from parley.control.state import State
from parley.negotiation.requests import Amounts, requested
from parley.sdk import PodController, PodReference, SeenPod


def pods_are_seen(drivers: Drivers) -> bool:
    """Whether an embedded driver sees pods."""
    return any(driver.sees_pods for driver in drivers.values())


def show_cluster(state: State) -> None:
    """Give the embedded drivers their view of the nodes."""
    for driver in state.drivers.values():
        driver.see(ClusterSight(state))


def seen_pod(state: State, user: PodReference) -> SeenPod | None:
    """The view of the pod, if an embedded driver sees pods and the pod exists; otherwise None."""
    if not pods_are_seen(state.drivers):
        return None
    pod = state.cluster.pod_with_uid(user)
    return _seen(pod) if pod is not None else None


def _seen(pod: Pod) -> SeenPod:
    owners = [one for one in pod.metadata.owner_references if one.controller]
    controllers = [PodController(one.api_version, one.kind, one.name, one.uid) for one in owners]
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return SeenPod(
        labels=pod.metadata.labels,
        controller=controllers[0] if controllers else None,
        priority=priority(pod),
        requests=requested(pod),
        images=tuple(container.image for container in containers),
    )


class ClusterSight:
    """The view of the nodes that drivers have, a `SeenCluster`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def nodes(self) -> Sequence[str]:
        return self._state.cluster.node_names()

    def labels(self, node: str) -> Mapping[str, str]:
        found = self._state.cluster.node(node)
        return found.metadata.labels if found is not None else {}

    def allocatable(self, node: str) -> Amounts:
        return self._state.cluster.allocatable(node)

    def used(self, node: str) -> Amounts:
        return self._state.cluster.usage.used(node)

    def reserved(self, node: str) -> Amounts:
        total = Counter[str]()
        for holding in self._state.ledger.reserving(node):
            total.update(reserved(holding))
        return total

    def users(self, claim_uid: str) -> Sequence[PodReference]:
        holding = self._state.ledger.get(claim_uid)
        return tuple(holding.pods.values()) if holding is not None else ()
