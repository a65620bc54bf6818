"""Pods for which nothing can be done now, in lines of pods that want the same, in order of arrival. Pure.

A change wakes only the first pod of each line that the change may help. If that pod is served it leaves the
line and the next one is woken; if not, the others of its line could not be served either. So one freed device
costs one negotiation per line, however many pods wait.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Line = Hashable
Topic = tuple[str, ...]


class WaitingLines(Generic[K]):
    """All lines."""

    def __init__(self) -> None:
        self._lines: dict[Line, OrderedDict[K, None]] = {}
        self._line_of: dict[K, Line] = {}
        self._by_topic: defaultdict[Topic, dict[Line, None]] = defaultdict(dict)
        self._topics: dict[Line, tuple[Topic, ...]] = {}

    def __len__(self) -> int:
        return len(self._line_of)

    def wait(self, pod: K, line: Line, topics: Iterable[Topic]) -> K | None:
        """The pod waits in the line until one of the topics changes; it keeps its place if it is in it already.

        Returns the pod to wake because this one left the head of another line.
        """
        if self._line_of.get(pod) == line:
            return None
        woken = self.leave(pod)
        if line not in self._lines:
            self._lines[line] = OrderedDict()
            self._topics[line] = tuple(dict.fromkeys(topics))  # two claims of a class name it twice
            for topic in self._topics[line]:
                self._by_topic[topic][line] = None
        self._lines[line][pod] = None
        self._line_of[pod] = line
        return woken

    def hears_of(self, pod: K, topics: Iterable[Topic]) -> bool:
        """Whether the pod waits in a line that a change of any of the topics wakes."""
        line = self._line_of.get(pod)
        return line is not None and set(topics) <= set(self._topics[line])

    def leave(self, pod: K) -> K | None:
        """The pod waits no more. Returns the pod that is first now, if this one was first before."""
        line = self._line_of.pop(pod, None)
        if line is None:
            return None
        pods = self._lines[line]
        was_first = next(iter(pods)) == pod
        del pods[pod]
        if pods:
            return next(iter(pods)) if was_first else None
        del self._lines[line]
        for topic in self._topics.pop(line):
            del self._by_topic[topic][line]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
        return None

    def wake(self, topic: Topic) -> list[K]:
        """The first pod of each line that waits for the topic."""
        return [next(iter(self._lines[line])) for line in self._by_topic.get(topic, ())]
