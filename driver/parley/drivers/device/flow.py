"""Distributes devices of groups over wants, by a maximum flow in a bipartite network. Pure.

Wants are on one side, groups on the other; the edge from a want to a group that suits it has the capacity `times`
the number of the group's devices. The flow is filled greedily in order, then completed along augmenting paths
(Ford and Fulkerson, shortest path first as in Edmonds and Karp): it finds a distribution exactly if there is one.

The effort is counted in steps, one for each want, group or edge that is visited: deterministic, unlike time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


class OutOfSteps(Exception):
    """Raised when a search would take more steps than its limit."""


@dataclass(slots=True)
class Steps:
    """The steps that a search has left. A step takes up to a microsecond."""

    left: int

    def take(self, count: int) -> None:
        """Takes so many steps. Raises OutOfSteps if fewer are left."""
        if not self.try_take(count):
            self.left = -1
            raise OutOfSteps

    def try_take(self, count: int) -> bool:
        """Takes so many steps, if they are left; returns whether."""
        if self.left < count:
            return False
        self.left -= count
        return True


@dataclass(frozen=True, slots=True)
class Want:
    """`amount` units of the groups in `suited` (by number, the best first), at most `times` of one device."""

    amount: int
    times: int
    suited: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """The supply of a group: a number of devices with `each` units."""

    devices: int
    each: int


Flow = list[dict[int, int]]
"""For each want, the number of units that it gets of each group."""


def fill(wants: Sequence[Want], rooms: Sequence[Room], steps: Steps) -> Flow | None:
    """A flow that serves all wants, or None if there is none. Raises OutOfSteps."""
    return _Filling(wants, rooms, steps).run()


class _Filling:
    def __init__(self, wants: Sequence[Want], rooms: Sequence[Room], steps: Steps) -> None:
        self._wants = wants
        self._rooms = rooms
        self._steps = steps
        self._left = [room.devices * room.each for room in rooms]
        self._flow: Flow = [{} for _ in wants]
        self._users: list[set[int]] = [set() for _ in rooms]

    def run(self) -> Flow | None:
        self._steps.take(len(self._wants) + len(self._rooms))
        if sum(want.amount for want in self._wants) > sum(self._left):
            return None
        missing = [self._take_free_units(number) for number in range(len(self._wants))]
        for number, units in enumerate(missing):
            while units:
                moved = self._augment(number, units)
                if not moved:
                    return None
                units -= moved
        return self._flow

    def _take_free_units(self, number: int) -> int:
        """Gives the want free units; returns how many are still missing."""
        want = self._wants[number]
        missing = want.amount
        self._steps.take(len(want.suited))
        for group in want.suited:
            if units := min(missing, self._left[group], self._open(number, group)):
                self._move(number, group, units)
                self._left[group] -= units
                missing -= units
            if not missing:
                break
        return missing

    def _open(self, number: int, group: int) -> int:
        """How many more units the want may take of the group, ignoring the other wants."""
        return self._wants[number].times * self._rooms[group].devices - self._flow[number].get(group, 0)

    def _move(self, number: int, group: int, units: int) -> None:
        self._flow[number][group] = left = self._flow[number].get(group, 0) + units
        if left:
            self._users[group].add(number)
        else:
            del self._flow[number][group]
            self._users[group].discard(number)

    def _augment(self, start: int, most: int) -> int:
        """Moves other wants to other groups, to free units for this one. Returns the units that it got."""
        gave_way: dict[int, int] = {}
        reached: dict[int, int] = {}
        queue, queued = deque([start]), {start}
        while queue:
            number = queue.popleft()
            self._steps.take(len(self._wants[number].suited))
            for group in self._wants[number].suited:
                if group in reached or not self._open(number, group):
                    continue
                reached[group] = number
                if self._left[group]:
                    return self._shift(start, group, most, reached, gave_way)
                self._steps.take(len(self._users[group]))
                others = [other for other in sorted(self._users[group]) if other not in queued]
                gave_way.update(dict.fromkeys(others, group))
                queued.update(others)
                queue.extend(others)
        return 0

    def _shift(self, start: int, end: int, most: int, reached: dict[int, int], gave_way: dict[int, int]) -> int:
        """Moves as many units as possible along the augmenting path, from its end to its start."""
        path = [(reached[end], end)]
        while path[-1][0] != start:
            group = gave_way[path[-1][0]]
            path.append((reached[group], group))
        units = min(most, self._left[end], *(self._open(number, group) for number, group in path))
        units = min([units, *(self._flow[number][gave_way[number]] for number, _ in path if number != start)])
        for number, group in path:
            self._move(number, group, units)
            if number != start:
                self._move(number, gave_way[number], -units)
        self._left[end] -= units
        return units
