"""Which of the pods that wait for a driver is requeued when something changed there.

Pods that want the same wait in one line, by priority and then arrival. A change requeues the first of each line,
and no other. When that pod is served, the next is requeued. When it isn't within some seconds (the node may be
none for this pod), it is passed over and the next is requeued, until the driver was asked about each since the
change, or answers that nothing is left anywhere. So a thousand waiting pods cost one evaluation per change, and
none waits for ever behind a pod that can't go on.

Pods whose answer has viable nodes and that are not selected all the same (they wait for something else) stand in
lines of their own: their answers may get old, and are kept up to date in the same way, but nobody waits for them.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from parley.kube.cache import Key
from parley.negotiation.waiting import Place, Topic, WaitingLines

TURN_SECONDS = 10.0
"""So long the pod whose turn it is has to be served, before the next one is requeued."""

_CHANGE: Topic = ("change",)


class Outlook(Enum):
    """What an answer comes to."""

    VIABLE = "viable"
    ELSEWHERE = "elsewhere"
    """No asked node is viable; another one may be."""

    NOWHERE = "nowhere"
    """No node is viable, and the driver knows it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Pods that want the same; `hopeful` if they have viable nodes and wait for something else."""

    signature: Hashable
    hopeful: bool


@dataclass(slots=True)
class _Waiting:
    """The line that a pod waits in, its place there, and after how many changes the driver was last asked, or was
    to be."""

    line: _Line
    place: Place
    changes: int


@dataclass(slots=True)
class WaitingPods:
    """All pods that wait for one driver. `requeue` has the driver asked again about a pod."""

    requeue: Callable[[Key], None]
    changes: int = 0
    """How many there were so far: note it before the driver is asked."""

    _numbers: Iterator[int] = field(default_factory=count)
    _lines: WaitingLines[Key] = field(default_factory=WaitingLines[Key])
    _pods: dict[Key, _Waiting] = field(default_factory=dict)
    _turns: dict[_Line, Key] = field(default_factory=dict)
    """Whose turn it is, or was last, since the latest change."""

    _timers: dict[_Line, asyncio.TimerHandle] = field(default_factory=dict)

    def has(self, key: Key) -> bool:
        """Whether the pod waits."""
        return key in self._pods

    def changed(self) -> None:
        """The driver may serve waiting pods now: the first of each line has its turn."""
        self.changes += 1
        for key in self._lines.wake(_CHANGE):
            self._give_turn(key)

    def evaluated(self, key: Key, signature: Hashable, outlook: Outlook, seen: int, priority: int = 0) -> None:
        """The pod waits, with that answer, found when `changes` was `seen`."""
        line = _Line(signature, outlook is Outlook.VIABLE)
        waiting = self._pods.get(key)
        if waiting is not None and waiting.line == _Line(signature, hopeful=False):
            line = waiting.line  # it had its turn and was not served: it keeps its line
        elif waiting is not None and waiting.line != line:
            self.leave(key)
        place = waiting.place if waiting is not None else Place(-priority, next(self._numbers))
        self._pods[key] = _Waiting(line, place, seen)
        self._lines.wait(key, line, [_CHANGE], place)
        if outlook is Outlook.NOWHERE:
            self._stop(line)
        else:
            self._next_soon(line)
        if seen != self.changes:
            self._give_turn(key)

    def leave(self, key: Key) -> None:
        """The pod is served, or gone."""
        waiting = self._pods.pop(key, None)
        if waiting is None:
            return
        line = waiting.line
        self._lines.leave(key)
        had_turn = self._turns.get(line) == key
        if had_turn:
            del self._turns[line]
        if next(self._lines.members(line), None) is None:
            self._stop(line)
        elif had_turn and line.hopeful:
            self._next_soon(line)
        elif had_turn and (following := self._next(line)) is not None:
            self._give_turn(following)

    def _give_turn(self, key: Key) -> None:
        """It is this pod's turn."""
        waiting = self._pods[key]
        waiting.changes = self.changes
        self._turns[waiting.line] = key
        self._next_soon(waiting.line)
        self.requeue(key)

    def _outdated(self, key: Key) -> bool:
        return self._pods[key].changes < self.changes

    def _next(self, line: _Line) -> Key | None:
        """The first in the line about which the driver was not asked since the latest change."""
        return next((key for key in self._lines.members(line) if self._outdated(key)), None)

    def _next_soon(self, line: _Line) -> None:
        if line not in self._timers:
            self._timers[line] = asyncio.get_running_loop().call_later(TURN_SECONDS, self._pass_on, line)

    def _stop(self, line: _Line) -> None:
        if (timer := self._timers.pop(line, None)) is not None:
            timer.cancel()

    def _pass_on(self, line: _Line) -> None:
        """Whose turn it was had its time. The next is who was not asked about for longest: with a change in each
        turn, those first in line that can't go on would have all of them."""
        self._timers.pop(line, None)
        outdated = filter(self._outdated, self._lines.members(line))
        following = min(outdated, key=lambda key: self._pods[key].changes, default=None)
        if following is not None:
            self._give_turn(following)

    def close(self) -> None:
        """No pod is to be requeued any more."""
        for line in list(self._timers):
            self._stop(line)
