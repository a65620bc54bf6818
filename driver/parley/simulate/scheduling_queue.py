"""Decides which events requeue a pod of the simulated kube-scheduler: those that may change why it was rejected.

As upstream (`isPodWorthRequeuing`), only plugins that rejected some node, or the pod itself, count, and each has
registered for certain events; an extender for all of them. So a pod that only in-tree filters rejected is requeued
by events that these have registered for: not by changes of its annotations, nor of its claims unless the
DynamicResources plugin was among them; even if an extender kept it from preempting others afterwards. Left out:
the plugins' queueing hints, and that a pod that has waited for five minutes is tried again. Source:
backend/queue/scheduling_queue.go, and EventsToRegister of the plugins, of Kubernetes 1.37.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum, auto

from parley.kube.cache import Key


class ClusterEvent(Enum):
    """An event. Those of a waiting pod concern that pod alone, those of a claim the pods that use it."""

    POD_LEFT = auto()
    """A pod is no longer counted on its node."""
    NODE_ADDED = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_ALLOCATABLE = auto()
    CLAIM = auto()
    POD_GATES = auto()
    POD_LABELS = auto()
    POD_TOLERATIONS = auto()
    POD_CLAIMS = auto()
    OTHER = auto()
    """Any other event, such as a deleted node: no in-tree plugin has registered for it."""


class Plugin(Enum):
    """A plugin that rejects pods; the value is the events that it has registered for."""

    SCHEDULING_GATES = frozenset({ClusterEvent.POD_GATES})
    TAINT_TOLERATION = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS, ClusterEvent.POD_TOLERATIONS})
    NODE_AFFINITY = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS})
    NODE_RESOURCES_FIT = frozenset({ClusterEvent.POD_LEFT, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE})
    INTER_POD_AFFINITY = frozenset(
        {ClusterEvent.POD_LEFT, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS, ClusterEvent.POD_LABELS}
    )
    DYNAMIC_RESOURCES = frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.CLAIM,
            ClusterEvent.POD_CLAIMS,
        }
    )
    EXTENDER = frozenset(ClusterEvent)


class RequeueFilter:
    """Calls `requeue` for a pod at each event that makes it worth an attempt."""

    def __init__(self, requeue: Callable[[Key], None]) -> None:
        self._requeue = requeue
        self._rejected: dict[Key, frozenset[Plugin]] = {}
        """The plugins that rejected each pod; a pod without rejection is requeued by any event."""
        self._in_attempt: Key | None = None
        self._events: set[ClusterEvent] = set()
        """Events about the pod that is being scheduled, since its attempt began."""

    def pod_added(self, key: Key) -> None:
        """Requeue a pod that was created, or recreated with the same name."""
        self._rejected.pop(key, None)
        self._requeue(key)

    def event(self, key: Key, event: ClusterEvent) -> None:
        """Requeue the pod if the event may make it schedulable."""
        rejectors = self._rejected.get(key)
        if key == self._in_attempt:
            self._events.add(event)
        elif rejectors is None or any(event in plugin.value for plugin in rejectors):
            self._requeue(key)

    def forget(self, key: Key) -> None:
        """Forget a pod that does not wait any more."""
        self._rejected.pop(key, None)

    @contextmanager
    def attempt(self, key: Key) -> Iterator[None]:
        """The block is an attempt to schedule the pod: events meanwhile are handled at its end, by its
        rejections."""
        self._rejected.pop(key, None)
        self._in_attempt, self._events = key, set()
        try:
            yield
        finally:
            self._in_attempt = None
            for event in self._events:
                self.event(key, event)

    def rejected(self, key: Key, plugins: Collection[Plugin]) -> None:
        """Record the plugins that rejected the pod, or its nodes; none if the cluster has no nodes."""
        if plugins:
            self._rejected[key] = frozenset(plugins)
