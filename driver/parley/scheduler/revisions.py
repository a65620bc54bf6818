"""How far what pods wait for has changed: numbers that differ whenever something did. In memory, bounded.

Topics come and go with claims and templates, so only those that changed last are known one by one. All others
count as changed when the newest of the forgotten ones did: whoever remembers an older number looks once more
for nothing.
"""

from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import TypeVar

from parley.negotiation.waiting import Topic

K = TypeVar("K")

MOST_TOPICS = 8192


class Revisions:
    """The number of the last change of each topic; `most` topics are known one by one."""

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._changes = 0
        self._last: dict[Topic, int] = {}
        self._forgotten = 0
        self._everywhere: dict[Topic, int] = {}
        """Of these the last change that was not one on some nodes alone."""
        self._forgotten_everywhere = 0
        self._on: dict[str, int] = {}
        """The last change of any topic on each node, the latest last."""
        self._forgotten_nodes = 0

    def __len__(self) -> int:
        return len(self._last)

    def changed(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """The topic is another from now on, on these nodes alone if they are given."""
        self._changes += 1
        self._forgotten = max(self._forgotten, self._note(self._last, topic))
        if nodes is None:
            self._forgotten_everywhere = max(self._forgotten_everywhere, self._note(self._everywhere, topic))
        for node in nodes or ():
            self._forgotten_nodes = max(self._forgotten_nodes, self._note(self._on, node))

    def changed_on(self, node: str) -> None:
        """Something on the node is another, of which nobody has to hear at once."""
        self._changes += 1
        self._forgotten_nodes = max(self._forgotten_nodes, self._note(self._on, node))

    def _note(self, last: dict[K, int], of: K) -> int:
        """The number of the change that is forgotten for this one, 0 if none is."""
        last.pop(of, None)
        last[of] = self._changes
        return last.pop(next(iter(last))) if len(last) > self._most else 0

    def nodes_since(self, topics: Iterable[Topic], number: int) -> frozenset[str] | None:
        """The nodes on which anything has changed after the change of that number; None if one of these topics may
        have changed everywhere, or if that was too long ago."""
        everywhere = (self._everywhere.get(topic, self._forgotten_everywhere) for topic in topics)
        if number < self._forgotten_nodes or any(change > number for change in everywhere):
            return None
        return frozenset(takewhile(lambda node: self._on[node] > number, reversed(self._on)))

    @property
    def latest(self) -> int:
        """The number of the last change of any topic."""
        return self._changes

    def any_since(self, topics: Iterable[Topic], number: int) -> bool:
        """Whether any of the topics has changed after the change of that number."""
        return any(change > number for change in self.of(topics))

    def of(self, topics: Iterable[Topic]) -> tuple[int, ...]:
        """Other numbers whenever any of the topics has changed."""
        return tuple(self._last.get(topic, self._forgotten) for topic in topics)
