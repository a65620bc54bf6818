"""Decides which of the pods that wait for a driver are requeued after a change of its resources.

Pods with equal requests wait in one line, by priority and then arrival. A change requeues the first pod of each
line, and no other. When that pod is served, the next is requeued. If it isn't within `TURN_SECONDS` (perhaps the
pod can't use the node), it is passed over and the next is requeued, until the driver was asked about each pod
since the change, or answers that nothing is left on any node. So a thousand waiting pods cost one evaluation per
change, and no pod is blocked for ever by one that can't proceed.

Pods with viable nodes, but no selected node yet (they wait for something else), stand in lines of their own: their
answers get old, and are kept up to date in the same way, but they don't hold up other pods.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from parley.kube.cache import Key
from parley.negotiation.waiting import Place, Topic, WaitingLines

TURN_SECONDS = 10.0
"""How long a pod's turn lasts: if it is not served by then, the next pod is requeued."""

_CHANGE: Topic = ("change",)


class Outlook(Enum):
    """The result of an answer for the whole pod."""

    VIABLE = "viable"
    ELSEWHERE = "elsewhere"
    """No candidate node is viable; another node may be."""

    NOWHERE = "nowhere"
    """The driver knows that no node is viable."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Pods with equal requests; `hopeful` if they have viable nodes and wait for something else."""

    signature: Hashable
    hopeful: bool


@dataclass(slots=True)
class _Waiting:
    """The line that a pod waits in, its place there, and the value of `WaitingPods.changes` when the driver was
    last asked about it, or its turn began."""

    line: _Line
    place: Place
    changes: int


@dataclass(slots=True)
class WaitingPods:
    """All pods that wait for one driver. `requeue` makes a worker ask the driver about the pod again."""

    requeue: Callable[[Key], None]
    changes: int = 0
    """The number of changes so far: note it before the driver is asked."""

    _numbers: Iterator[int] = field(default_factory=count)
    _lines: WaitingLines[Key] = field(default_factory=WaitingLines[Key])
    _pods: dict[Key, _Waiting] = field(default_factory=dict)
    _turns: dict[_Line, Key] = field(default_factory=dict)
    """The pod of each line whose turn it is, or was last."""

    _timers: dict[_Line, asyncio.TimerHandle] = field(default_factory=dict)

    def has(self, key: Key) -> bool:
        """Whether the pod waits."""
        return key in self._pods

    def changed(self) -> None:
        """Gives the first pod of each line its turn: the driver may serve waiting pods now."""
        self.changes += 1
        for key in self._lines.wake(_CHANGE):
            self._give_turn(key)

    def evaluated(self, key: Key, signature: Hashable, outlook: Outlook, seen: int, priority: int = 0) -> None:
        """Puts the pod in line after an answer with that outlook. `seen`: the value of `changes` before it."""
        line = _Line(signature, outlook is Outlook.VIABLE)
        waiting = self._pods.get(key)
        if waiting is not None and waiting.line == _Line(signature, hopeful=False):
            line = waiting.line  # its turn came and it was not served: it keeps its line
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
        """Removes a pod that is served or gone."""
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
        """Begins this pod's turn."""
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
        """Ends the turn of the line's pod, whose time is over. The next turn is that of the outdated pod that was
        evaluated longest ago: otherwise, with frequent changes, the first pods in line would have all turns."""
        self._timers.pop(line, None)
        outdated = filter(self._outdated, self._lines.members(line))
        following = min(outdated, key=lambda key: self._pods[key].changes, default=None)
        if following is not None:
            self._give_turn(following)

    def close(self) -> None:
        """Stops all timers, so that no pod is requeued any more."""
        for line in list(self._timers):
            self._stop(line)
