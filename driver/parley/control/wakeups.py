"""Notifies the waiting lines of pods and claims when a topic that they wait for changes.

Code that changes something wakes its topic; code that keeps waiting lines subscribes. Neither knows the other.
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
        """Call the listener from now on for `usage_reduced`, which `subscribe` leaves out."""
        self._of_usage.append(listener)

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """Notify that the topic changed, on these nodes only if they are given."""
        for listener in self._listeners:
            listener(topic, nodes)

    def usage_reduced(self, topic: Topic, nodes: Collection[str]) -> None:
        """Notify those that wait for room on these nodes, and nobody else, that pods use less of them."""
        for listener in self._of_usage:
            listener(topic, nodes)
