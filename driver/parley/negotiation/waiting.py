"""Waiting pods, in lines of pods with equal requests, ordered by priority and then arrival. Pure.

A change wakes only the first pod of each line that the change may help. If that pod is served it leaves the
line and the next one is woken; if not, the others of its line could not be served either. So one freed device
costs at most one negotiation per line, however many pods wait; and none where the line's `Helps` rules out that
the change helps it.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
Line = Hashable
Topic = tuple[str, ...]
"""Something whose change wakes waiting pods: ("class", NAME), ("claim", NAMESPACE, NAME), ("driver", NAME), ..."""
Helps = Callable[[Collection[str] | None], bool]
"""Whether a change on these nodes, and nowhere else, may help the pods of a line; None: a change of what a driver
can allocate, on any node."""

UP_TO_DATE_SECONDS = 60.0
"""The age, in seconds, that a waiting pod's message about nodes may reach after a change there that does not help
the pod; it may be older where very many pods wait in a large cluster."""


MAX_LINES_ASKED = 300
"""The most lines of one flow whose `Helps` is called for one change: each call may compare much, and everything
else waits meanwhile. The lines after these, of worse places, are not asked."""

MOST_COMPARED = 2000
"""The most reservations that these calls compare, all together."""


class Place(NamedTuple):
    """A pod's position in any line, unique to the pod: it stands ahead of all pods with a larger one.

    `rank` is the negated priority, `arrival` a counter in the order of the pods' arrival.
    """

    rank: int
    arrival: int


_PLACE = itemgetter(0)


@dataclass(eq=False, slots=True)
class _Waiting(Generic[K]):
    """A line with its pods, by place, that wait until one of the topics changes. It is never empty."""

    line: Line
    topics: tuple[Topic, ...]
    helps: Helps | None = None
    pods: list[tuple[Place, K]] = field(default_factory=list)


def _first(waiting: _Waiting[K]) -> Place:
    return waiting.pods[0][0]


class Woken(NamedTuple, Generic[K]):
    """The first pods of the lines that a change wakes: those that it may help, those that it does not help, and
    those that were not asked about, which it may help or not. Each in the order of their places."""

    helped: list[K]
    not_helped: list[K]
    not_asked: list[K]


class WaitingLines(Generic[K]):
    """Pods that can't be served now, each in one line; a change of a line's topics wakes its first pod. `K` is a
    pod's key, `flow` returns the flow of a pod, such as its namespace, for fairness."""

    def __init__(self, flow: Callable[[K], Hashable] = lambda _: None) -> None:
        self._flow = flow
        self._lines: dict[Line, _Waiting[K]] = {}
        self._place_of: dict[K, tuple[_Waiting[K], Place]] = {}
        self._by_topic: defaultdict[Topic, dict[_Waiting[K], None]] = defaultdict(dict)
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._place_of)

    def wait(
        self,
        pod: K,
        line: Line,
        topics: Iterable[Topic],
        place: Place | None = None,
        helps: Helps | None = None,
    ) -> K | None:
        """Adds the pod to the line, to wait until one of the topics changes; it keeps its place if it is there.

        Pass `place` for all pods or for none: without it, all have one priority, and arrive when they begin to
        wait. `helps` decides whether a driver's change, or one on some nodes, may help the line; without it each
        may. Returns the pod to wake because this one left the head of another line.
        """
        if pod in self._place_of and (present := self._place_of[pod][0]).line == line:
            present.helps = helps
            return None
        woken = self.leave(pod)
        waiting = self._lines.get(line)
        if waiting is None:
            # two claims of a class name a topic twice
            waiting = self._lines[line] = _Waiting(line, tuple(dict.fromkeys(topics)))
            for topic in waiting.topics:
                self._by_topic[topic][waiting] = None
        waiting.helps = helps
        if place is None:
            place = Place(0, next(self._arrivals))
        insort(waiting.pods, (place, pod), key=_PLACE)
        self._place_of[pod] = waiting, place
        return woken

    def move(self, pod: K, line: Line) -> K | None:
        """Moves the pod, if it waits, to another line, for the same topics. Returns the same as `wait`."""
        if pod not in self._place_of:
            return None
        waiting, place = self._place_of[pod]
        return self.wait(pod, line, waiting.topics, place, waiting.helps)

    def line_of(self, pod: K) -> Line | None:
        """The line that the pod waits in."""
        return self._place_of[pod][0].line if pod in self._place_of else None

    def members(self, line: Line) -> Iterator[K]:
        """The pods of the line, by place."""
        return (pod for _, pod in self._lines[line].pods) if line in self._lines else iter(())

    def is_woken_by(self, pod: K, topics: Iterable[Topic]) -> bool:
        """Whether the pod waits in a line that is woken by each of the topics."""
        place = self._place_of.get(pod)
        return place is not None and all(place[0] in self._by_topic.get(topic, ()) for topic in topics)

    def leave(self, pod: K) -> K | None:
        """Removes the pod from its line. Returns the pod that is first now, if this one was first before."""
        if pod not in self._place_of:
            return None
        waiting, place = self._place_of.pop(pod)
        index = bisect_left(waiting.pods, place, key=_PLACE)
        del waiting.pods[index]
        if waiting.pods:
            return waiting.pods[0][1] if index == 0 else None
        del self._lines[waiting.line]
        for topic in waiting.topics:
            del self._by_topic[topic][waiting]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
        return None

    def wake(self, topic: Topic) -> list[K]:
        """The first pod of each line that waits for the topic, in the order of their places."""
        return [pod for _, _, pod in self.heads(topic)]

    def split_by_help(
        self, topic: Topic, nodes: Collection[str] | None, above: int | None = None, compared: int = 0
    ) -> Woken[K]:
        """The same pods as `wake`, by whether the change may help them; with `above` only smaller ranks.

        `nodes` are those on which anything changed; None is any node: `Helps` is then called only for a driver's
        topic. It is called for at most `MAX_LINES_ASKED` lines of one flow, and for fewer if each call compares
        many reservations: `compared` is their number.
        """
        most = max(1, min(MAX_LINES_ASKED, MOST_COMPARED // max(compared, 1)))
        woken: Woken[K] = Woken([], [], [])
        asked: Counter[Hashable] = Counter()
        for waiting in self._waiting_for(topic):
            (place, pod), helps = waiting.pods[0], waiting.helps
            if above is not None and place.rank >= above:
                break
            if helps is None or (nodes is None and topic[0] != "driver"):
                woken.helped.append(pod)
                continue
            asked[self._flow(pod)] += 1
            if asked[self._flow(pod)] > most:
                woken.not_asked.append(pod)
            else:
                (woken.helped if helps(nodes) else woken.not_helped).append(pod)
        return woken

    def heads(self, *topics: Topic) -> list[tuple[Line, Place, K]]:
        """The lines that wait for any of the topics, each with place and key of its first pod, by place."""
        return [(waiting.line, *waiting.pods[0]) for waiting in self._waiting_for(*topics)]

    def _waiting_for(self, *topics: Topic) -> list[_Waiting[K]]:
        lines = dict.fromkeys(waiting for topic in topics for waiting in self._by_topic.get(topic, ()))
        return sorted(lines, key=_first)
