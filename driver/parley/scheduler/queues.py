"""The controller's work queues: what their keys are, in which order they are served, how log entries name them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import ROOM
from parley.control.objects.pod import priority
from parley.kube.cache import Key
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import Topic
from parley.sdk import PodReference

ROOM_SECONDS = 0.1
"""The delay between a change and the reconciliation of the reservation pods on its node."""


def _named(kind: str) -> Callable[[Key], Mapping[str, object]]:
    """The fields of a log entry about a key: {"pod": "team/a"}."""
    return lambda key: {kind: "/".join(key)}


def _pod_fields(pod: PodReference) -> Mapping[str, object]:
    return {"pod": f"{pod.namespace}/{pod.name}"}


def _queue(kind: str, rank: Callable[[Key], int] = lambda _: 0) -> WorkQueue[Key]:
    """A work queue for namespaced objects of a kind, in which the namespaces take turns."""
    return WorkQueue(fields=_named(kind), rank=rank, flow=lambda key: key[0])


@dataclass(frozen=True)
class Queues:
    """The work queues, in which namespaces take turns. Keys: `pods` by priority; `claims` (named ones) and
    `templates` by name; `releases`: UIDs of holdings for which nodes have something to do; `publications`: pods
    whose PodScheduling is outdated; `classes` whose status may be; `reservations`: nodes with reservation pods."""

    pods: WorkQueue[Key]
    releases: WorkQueue[str]
    claims: WorkQueue[Key] = field(default_factory=lambda: _queue("claim"))
    templates: WorkQueue[Key] = field(default_factory=lambda: _queue("template"))
    publications: WorkQueue[PodReference] = field(
        default_factory=lambda: WorkQueue(fields=_pod_fields, flow=lambda pod: pod.namespace)
    )
    classes: WorkQueue[str] = field(default_factory=lambda: WorkQueue(fields=lambda name: {"class": name}))
    reservations: WorkQueue[str] = field(default_factory=lambda: WorkQueue(fields=lambda node: {"node": node}))

    def wake(self, topic: Topic, nodes: Iterable[str] | None = None) -> None:
        """Enqueue what a topic's change affects beside pods: a named claim, or nodes with reserved room."""
        if topic[0] == "claim":
            self.claims.add((topic[1], topic[2]))
        elif topic == ROOM:
            for node in nodes or ():
                self.enqueue_reservations(node)

    def enqueue_reservations(self, node: str) -> None:
        """Enqueue the node after a short delay, because its reservation pods may have to change. Many pods may
        come and go at a time: the node is reconciled once for all of them."""
        self.reservations.add_after(node, ROOM_SECONDS)

    @staticmethod
    def empty(cluster: ClusterCache, namespace_of: Callable[[str], str]) -> "Queues":
        """Empty queues for the cluster. `namespace_of` maps a holding's UID to its namespace, "" if unknown."""

        def rank(key: Key) -> int:
            pod = cluster.pod(key)
            return -priority(pod) if pod is not None else 0

        return Queues(_queue("pod", rank), WorkQueue(fields=lambda uid: {"holding": uid}, flow=namespace_of))
