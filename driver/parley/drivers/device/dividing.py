"""Decides how many devices of each group are allocated whole, and how many by share. Pure.

If whole devices, chosen without regard to the shares, leave enough for these, that is the result. Otherwise a
search tries how many devices of each group are allocated whole: groups that suit the same wants are merged, groups
that suit no share come first, and branches that leave too little for the other wants are cut off. The search can
be long, so its steps are limited.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parley.drivers.device.flow import Flow, Room, Steps, Want, fill


@dataclass(frozen=True, slots=True)
class Supply:
    """A number of equal devices, each with `free` shares; only `untouched` ones can be allocated whole."""

    devices: int
    free: int
    untouched: bool


@dataclass(frozen=True, slots=True)
class Division:
    """The units of each supply that each want gets: whole devices, and shares of other devices."""

    whole: Flow
    shared: Flow

    def given(self, supplies: int) -> list[int]:
        """The number of devices of each supply that are allocated whole."""
        return _sums(self.whole, supplies)


def divide(
    wholes: Sequence[Want], shares: Sequence[Want], supplies: Sequence[Supply], steps: Steps
) -> Division | None:
    """A division that serves all wants, or None if there is none. Raises OutOfSteps."""
    whole = fill(wholes, _whole_rooms(supplies), steps)
    if whole is None or fill(shares, _shared_rooms(supplies), steps) is None:
        return None
    shared = fill(shares, _shared_rooms(supplies, _sums(whole, len(supplies))), steps)
    if shared is not None:
        return Division(whole, shared)
    given = _Search(wholes, shares, supplies, steps).run()
    if given is None:
        return None
    whole = fill(wholes, [Room(count, 1) for count in given], steps)
    shared = fill(shares, _shared_rooms(supplies, given), steps)
    assert whole is not None
    assert shared is not None
    return Division(whole, shared)


def _whole_rooms(supplies: Sequence[Supply]) -> list[Room]:
    return [Room(supply.devices if supply.untouched else 0, 1) for supply in supplies]


def _shared_rooms(supplies: Sequence[Supply], given: Sequence[int] = ()) -> list[Room]:
    taken = given or [0] * len(supplies)
    return [Room(s.devices - count, s.free) for s, count in zip(supplies, taken, strict=True)]


def _sums(flow: Flow, supplies: int) -> list[int]:
    sums = [0] * supplies
    for of_want in flow:
        for supply, units in of_want.items():
            sums[supply] += units
    return sums


class _Search:
    """Searches how many devices of each supply go whole. Supplies that suit the same wants form a class."""

    def __init__(
        self, wholes: Sequence[Want], shares: Sequence[Want], supplies: Sequence[Supply], steps: Steps
    ) -> None:
        self._steps = steps
        self._supplies = supplies
        steps.take((len(wholes) + len(shares)) * len(supplies))
        self._classes = _classes(wholes, shares, supplies)
        self._merged = [_merged([supplies[number] for number in numbers]) for numbers in self._classes]
        self._wholes = [_of_classes(want, self._classes) for want in wholes]
        self._shares = [_of_classes(want, self._classes) for want in shares]
        self._useful = {number for want in self._shares for number in want.suited}
        wanted = {number for want in self._wholes for number in want.suited}
        self._order = sorted(wanted, key=lambda number: (number in self._useful, number))

    def run(self) -> list[int] | None:
        """The number of devices of each supply to allocate whole; None if there is no way. Raises OutOfSteps."""
        most = [room.devices if n in self._order else 0 for n, room in enumerate(_whole_rooms(self._merged))]
        found = next(self._ways(most, [0] * len(most), 0), None)
        return None if found is None else self._by_supply(found)

    def _ways(self, most: list[int], given: list[int], position: int) -> Iterator[list[int]]:
        """All ways to serve the wants for whole devices, given the counts for the classes before `position`."""
        if position == len(self._order):
            yield given
            return
        number = self._order[position]
        for count in range(most[number], -1, -1):
            limits, taken = _with(most, number, count), _with(given, number, count)
            if fill(self._wholes, [Room(limit, 1) for limit in limits], self._steps) is None:
                return  # it fails with smaller counts as well
            if self._too_few(taken, self._order[position + 1 :]) or not self._all_wanted(taken):
                continue
            if not self._shares_fit(taken):
                continue
            yield from self._ways(limits, taken, position + 1)
            if number not in self._useful:
                return  # no share can use this class: smaller counts would only take more of other classes

    def _too_few(self, taken: Sequence[int], undecided: Sequence[int]) -> bool:
        """Whether too few shares are left in all, even if the devices with the fewest go whole."""
        self._steps.take(len(taken))
        left = sum((s.devices - n) * s.free for s, n in zip(self._merged, taken, strict=True))
        missing = sum(want.amount for want in self._wholes) - sum(taken)
        for number in sorted(undecided, key=lambda number: self._merged[number].free):
            units = max(0, min(missing, self._merged[number].devices))
            left, missing = left - units * self._merged[number].free, missing - units
        return left < sum(want.amount for want in self._shares)

    def _shares_fit(self, taken: Sequence[int]) -> bool:
        return fill(self._shares, _shared_rooms(self._merged, taken), self._steps) is not None

    def _all_wanted(self, taken: Sequence[int]) -> bool:
        """Whether the wants can use all devices that are taken whole."""
        wanted_by = [tuple(w for w, want in enumerate(self._wholes) if n in want.suited) for n in self._order]
        offers = [Want(taken[number], 1, wants) for number, wants in zip(self._order, wanted_by, strict=True)]
        return fill(offers, [Room(want.amount, 1) for want in self._wholes], self._steps) is not None

    def _by_supply(self, by_class: Sequence[int]) -> list[int]:
        given = [0] * len(self._supplies)
        for numbers, left in zip(self._classes, by_class, strict=True):
            for number in numbers:
                given[number] = min(left, self._supplies[number].devices)
                left -= given[number]
        return given


def _with(counts: list[int], number: int, count: int) -> list[int]:
    return [*counts[:number], count, *counts[number + 1 :]]


def _classes(wholes: Sequence[Want], shares: Sequence[Want], supplies: Sequence[Supply]) -> list[list[int]]:
    wanted_by: list[list[int]] = [[] for _ in supplies]
    for want_number, want in enumerate((*wholes, *shares)):
        for number in want.suited:
            wanted_by[number].append(want_number)
    classes: defaultdict[object, list[int]] = defaultdict(list)
    for number, supply in enumerate(supplies):
        if wanted_by[number]:
            classes[supply.free, supply.untouched, tuple(wanted_by[number])].append(number)
    return list(classes.values())


def _merged(supplies: Sequence[Supply]) -> Supply:
    return Supply(sum(supply.devices for supply in supplies), supplies[0].free, supplies[0].untouched)


def _of_classes(want: Want, classes: Sequence[Sequence[int]]) -> Want:
    suited = frozenset(want.suited)
    return Want(want.amount, want.times, tuple(n for n, numbers in enumerate(classes) if numbers[0] in suited))
