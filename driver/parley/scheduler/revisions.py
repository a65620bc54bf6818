"""How far what pods wait for has changed: numbers that differ whenever something did. In memory, bounded.

Topics come and go with claims and templates, so only those that changed last are known one by one. All others
count as changed when the newest of the forgotten ones did: whoever remembers an older number looks once more
for nothing.
"""

from collections.abc import Iterable

from parley.negotiation.waiting import Topic

MOST_TOPICS = 8192


class Revisions:
    """The number of the last change of each topic; `most` topics are known one by one."""

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._changes = 0
        self._last: dict[Topic, int] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._last)

    def changed(self, topic: Topic) -> None:
        """The topic is another from now on."""
        self._changes += 1
        self._last.pop(topic, None)
        self._last[topic] = self._changes
        if len(self._last) > self._most:
            self._forgotten = self._last.pop(next(iter(self._last)))

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
