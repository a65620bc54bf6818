"""Topics: what waiting pods and claims wait for, and who is notified when one changes.

Whoever changes something wakes its topic; whoever keeps waiting lines subscribes. Neither knows the other.
"""

from collections.abc import Callable, Collection

from parley.negotiation.waiting import Topic

Listener = Callable[[Topic, Collection[str] | None], None]


class Wakeups:
    """Passes each change of a topic on to all subscribers, at once and in the order in which they subscribed."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._of_usage: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call the listener for every topic from now on."""
        self._listeners.append(listener)

    def subscribe_to_usage(self, listener: Listener) -> None:
        """Call the listener from now on when pods use less of nodes, of which the others are not told."""
        self._of_usage.append(listener)

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """The topic changed, on these nodes alone if they are given."""
        for listener in self._listeners:
            listener(topic, nodes)

    def less_used(self, topic: Topic, nodes: Collection[str]) -> None:
        """Pods use less of these nodes: what waits for room on them has to hear of it, and nobody else."""
        for listener in self._of_usage:
            listener(topic, nodes)
