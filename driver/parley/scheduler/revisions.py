"""Revisions of the topics that pods wait for: numbers that differ after every change. In memory, bounded.

Topics come and go with claims and templates, so only those that changed last are tracked individually. All others
count as changed when the newest of the forgotten ones did: at worst a pod is reconciled once more in vain.
"""

from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import TypeVar

from parley.negotiation.waiting import Topic

K = TypeVar("K")

MOST_TOPICS = 8192


class Revisions:
    """The number of the last change of each topic; `most` topics are tracked individually."""

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._changes = 0
        self._last: dict[Topic, int] = {}
        self._forgotten = 0
        self._everywhere: dict[Topic, int] = {}
        """The last change of each topic that was not limited to certain nodes."""
        self._forgotten_everywhere = 0
        self._on: dict[str, int] = {}
        """The last change of any topic on each node; the latest comes last."""
        self._forgotten_nodes = 0

    def __len__(self) -> int:
        return len(self._last)

    def changed(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """Count a change of the topic, on these nodes only if they are given."""
        self._changes += 1
        self._forgotten = max(self._forgotten, self._note(self._last, topic))
        if nodes is None:
            self._forgotten_everywhere = max(self._forgotten_everywhere, self._note(self._everywhere, topic))
        for node in nodes or ():
            self._forgotten_nodes = max(self._forgotten_nodes, self._note(self._on, node))

    def changed_on(self, node: str) -> None:
        """Count a change on the node that need not wake any pod."""
        self._changes += 1
        self._forgotten_nodes = max(self._forgotten_nodes, self._note(self._on, node))

    def _note(self, last: dict[K, int], key: K) -> int:
        """Record the current change for the key. Returns the number of the change that is forgotten for it, or
        0."""
        last.pop(key, None)
        last[key] = self._changes
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
        """Whether any of the topics has changed since the change with that number."""
        return any(change > number for change in self.of(topics))

    def of(self, topics: Iterable[Topic]) -> tuple[int, ...]:
        """The topics' numbers, of which at least one differs after any of the topics has changed."""
        return tuple(self._last.get(topic, self._forgotten) for topic in topics)
