"""Which events requeue a pod of the simulated kube-scheduler: those that may change why it was rejected.

As upstream (`isPodWorthRequeuing`): a pod of which an extender rejected a node is requeued by any event, as nobody
knows what matters to the extender. One that in-tree filters alone rejected is requeued by what these look at: not
by a change of its own annotations, even if an extender kept it from preempting others afterwards. What it leaves
out: hints of single filters (an event that matters to one matters to all), and that a pod which has waited for
five minutes is tried again.
Source: backend/queue/scheduling_queue.go of Kubernetes 1.37.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parley.kube.cache import Key


class RequeueFilter:
    """Calls `requeue` for a pod at each event that makes it worth an attempt."""

    def __init__(self, requeue: Callable[[Key], None]) -> None:
        self._requeue = requeue
        self._in_tree_alone: set[Key] = set()
        """The pods that in-tree filters alone rejected."""
        self._trying: Key | None = None
        self._events: set[bool] = set()
        """About the pod that is being tried, since that began: whether in-tree filters look at what changed."""

    def came(self, key: Key) -> None:
        """The pod is new, or another one of that name."""
        self._in_tree_alone.discard(key)
        self._requeue(key)

    def event(self, key: Key, *, in_tree: bool) -> None:
        """Something changed that in-tree filters look at, or that an extender may look at."""
        if key == self._trying:
            self._events.add(in_tree)
        elif in_tree or key not in self._in_tree_alone:
            self._requeue(key)

    def forget(self, key: Key) -> None:
        """The pod does not wait any more."""
        self._in_tree_alone.discard(key)

    @contextmanager
    def attempt(self, key: Key) -> Iterator[None]:
        """The pod is being tried: events about it count by what that shows."""
        self._in_tree_alone.discard(key)
        self._trying, self._events = key, set()
        try:
            yield
        finally:
            self._trying = None
            for in_tree in self._events:
                self.event(key, in_tree=in_tree)

    def rejected(self, key: Key, *, by_extender: bool) -> None:
        """No node passed; `by_extender`: some passed the in-tree filters."""
        if not by_extender:
            self._in_tree_alone.add(key)
