"""Which events requeue a pod of the simulated kube-scheduler: those that may change why it was rejected.

As upstream (`isPodWorthRequeuing`): of all plugins only those that rejected some node, or the pod itself, are
asked, and each has registered for certain events. An extender has for all, as nobody knows what matters to it. So
a pod that in-tree filters alone rejected is requeued by what these look at: not by its own annotations, and not
by its claims unless the DynamicResources plugin was among them; even if an extender kept it from preempting others
afterwards. What it leaves out: what a plugin thinks of a single event (hints), and that a pod which has waited for
five minutes is tried again.
Source: backend/queue/scheduling_queue.go, and EventsToRegister of the plugins, of Kubernetes 1.37.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum, auto

from parley.kube.cache import Key


class ClusterEvent(Enum):
    """What changed. The events of a pod are about that pod alone, those of a claim about pods that use it."""

    POD_LEFT = auto()
    """A pod that counted for a node does not any more."""
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
    """Anything else, as a node that is gone: no plugin has registered for it."""


class Plugin(Enum):
    """What rejects pods, with the events that it has registered for."""

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
        """What rejected the pods; what was not rejected any event requeues."""
        self._trying: Key | None = None
        self._events: set[ClusterEvent] = set()
        """About the pod that is being tried, since that began."""

    def came(self, key: Key) -> None:
        """The pod is new, or another one of that name."""
        self._rejected.pop(key, None)
        self._requeue(key)

    def event(self, key: Key, event: ClusterEvent) -> None:
        """Something changed that may concern the pod."""
        rejectors = self._rejected.get(key)
        if key == self._trying:
            self._events.add(event)
        elif rejectors is None or any(event in plugin.value for plugin in rejectors):
            self._requeue(key)

    def forget(self, key: Key) -> None:
        """The pod does not wait any more."""
        self._rejected.pop(key, None)

    @contextmanager
    def attempt(self, key: Key) -> Iterator[None]:
        """The pod is being tried: events about it count by what that shows."""
        self._rejected.pop(key, None)
        self._trying, self._events = key, set()
        try:
            yield
        finally:
            self._trying = None
            for event in self._events:
                self.event(key, event)

    def rejected(self, key: Key, plugins: Collection[Plugin]) -> None:
        """These plugins rejected the pod, or all nodes between them; none if there are no nodes."""
        if plugins:
            self._rejected[key] = frozenset(plugins)
