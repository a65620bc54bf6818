"""Divides what is wanted over groups of what there is, by a flow in a network of two layers. Pure.

Wants on one side, groups on the other; a want may take from each group that suits it so many times as often as
the group has devices. Filled greedily in order, then put right along augmenting paths (Ford and Fulkerson,
shortest path first as in Edmonds and Karp), so a way is found exactly if there is one.

The effort is counted in steps, of a want, a group or an edge between them each: deterministic, unlike time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


class OutOfSteps(Exception):
    """Raised when a search would take more steps than it may."""


@dataclass(slots=True)
class Steps:
    """How many steps are left. A step takes up to a microsecond."""

    left: int

    def take(self, count: int) -> None:
        """Raises OutOfSteps if there are not so many left."""
        if not self.try_take(count):
            self.left = -1
            raise OutOfSteps

    def try_take(self, count: int) -> bool:
        """Whether there were so many left."""
        if self.left < count:
            return False
        self.left -= count
        return True


@dataclass(frozen=True, slots=True)
class Want:
    """`amount` units out of the groups in `suited` (by number, the best first), at most `times` of a device."""

    amount: int
    times: int
    suited: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """What a group has to give: `each` units of so many devices."""

    devices: int
    each: int


Flow = list[dict[int, int]]
"""For each want how many units it gets of which group."""


def fill(wants: Sequence[Want], rooms: Sequence[Room], steps: Steps) -> Flow | None:
    """What each want gets, or None if there is not enough for all. Raises OutOfSteps."""
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
        missing = [self._take_what_is_free(number) for number in range(len(self._wants))]
        for number, units in enumerate(missing):
            while units:
                moved = self._augment(number, units)
                if not moved:
                    return None
                units -= moved
        return self._flow

    def _take_what_is_free(self, number: int) -> int:
        """Returns how many units are missing then."""
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
        """How many more units the want may take of the group, whatever others have."""
        return self._wants[number].times * self._rooms[group].devices - self._flow[number].get(group, 0)

    def _move(self, number: int, group: int, units: int) -> None:
        self._flow[number][group] = left = self._flow[number].get(group, 0) + units
        if left:
            self._users[group].add(number)
        else:
            del self._flow[number][group]
            self._users[group].discard(number)

    def _augment(self, start: int, most: int) -> int:
        """Let others make room for the want where they have other ways. Returns the units it got, 0 if none."""
        gave_way: dict[int, int] = {}
        reached: dict[int, int] = {}
        queue, seen = deque([start]), {start}
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
                others = [other for other in sorted(self._users[group]) if other not in seen]
                gave_way.update(dict.fromkeys(others, group))
                seen.update(others)
                queue.extend(others)
        return 0

    def _shift(self, start: int, end: int, most: int, reached: dict[int, int], gave_way: dict[int, int]) -> int:
        """Move as many units as possible along the path that was found, from its end to its start."""
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
