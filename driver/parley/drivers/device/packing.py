"""Finds devices on one node for several claims at once. Pure.

Devices that are alike (same properties, same number of free shares) are interchangeable, and so are claims that
ask for the same: how many of which group go to which of them is decided in `dividing`, and given names here.
Small devices and partly used ones are taken first, so that large and untouched ones stay whole.

It is exact: if the claims fit together in any way, a way is found, unless that takes more steps than it may.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from parley.drivers.device.dividing import Division, Supply, divide
from parley.drivers.device.flow import Steps, Want

Bytes = int | Fraction
"""Exact; whole numbers as such, since they are compared all the time."""


def exact(amount: Fraction) -> Bytes:
    """The same amount of memory."""
    return amount.numerator if amount.denominator == 1 else amount


@dataclass(frozen=True, slots=True, order=True)
class DeviceKind:
    """What makes devices different for a claim: memory in bytes, and the number of shares it is split into."""

    memory: Bytes
    slices: int
    model: str


@dataclass(frozen=True, slots=True)
class ClaimDemand:
    """What one claim asks for: `count` different devices, whole or one share of each.

    `memory` is the least memory in bytes of each device, or of each share: a share has an equal part of the
    device's memory.
    """

    count: int
    model: str | None
    memory: Bytes
    shared: bool

    def suits(self, kind: DeviceKind) -> bool:
        """Whether a free device of that kind would do."""
        if self.model is not None and self.model != kind.model:
            return False
        return kind.memory >= (self.memory * kind.slices if self.shared else self.memory)

    def supply(self, stock: "Stock") -> int:
        """How many of the free devices would do: one claim alone needs `count`."""
        return sum(len(names) for group, names in stock.items() if self.suits_group(group))

    def suits_group(self, group: "Group") -> bool:
        """Whether devices of the kind with that many free shares would do."""
        kind, free = group
        return (self.shared or free == kind.slices) and self.suits(kind)


Group = tuple[DeviceKind, int]
"""Devices of a kind with that many free shares."""

Stock = Mapping[Group, tuple[str, ...]]
"""The free devices of a node by group; those without a free share are left out."""

Packing = tuple[tuple[str, ...], ...]
"""The names of the devices for each demand."""


_SORTING = 8
"""Steps for each group, to put it in its place among the others."""


def pack(demands: tuple[ClaimDemand, ...], stock: Stock, steps: Steps) -> Packing | None:
    """Devices for each demand, in the order of the demands, or None if they do not fit together.

    Raises OutOfSteps if that is not found out with the steps that are left.
    """
    steps.take(_SORTING * len(stock))
    groups = sorted(group for group, names in stock.items() if names)
    wholes, shares = _alike(demands, shared=False), _alike(demands, shared=True)
    division = divide(
        [_want(demands, who, groups, steps) for who in wholes],
        [_want(demands, who, groups, steps) for who in shares],
        [Supply(len(stock[kind, free]), free, untouched=free == kind.slices) for kind, free in groups],
        steps,
    )
    if division is None:
        return None
    given = division.given(len(groups))
    chosen = dict(_whole_names(demands, wholes, division, [stock[group] for group in groups]))
    rest = [stock[group][count:] for group, count in zip(groups, given, strict=True)]
    chosen.update(_shared_names(shares, division, rest, [free for _, free in groups]))
    return tuple(tuple(sorted(chosen[place])) for place in range(len(demands)))


def _alike(demands: Sequence[ClaimDemand], *, shared: bool) -> list[list[int]]:
    """The places of the demands that ask for the same, of whole devices however many; the pickiest first."""
    alike: defaultdict[object, list[int]] = defaultdict(list)
    for place, demand in enumerate(demands):
        if demand.shared is shared:
            alike[demand.model, demand.memory, demand.count if shared else 0].append(place)
    return sorted(alike.values(), key=lambda who: (-demands[who[0]].count, demands[who[0]].model is None))


def _want(demands: Sequence[ClaimDemand], who: Sequence[int], groups: Sequence[Group], steps: Steps) -> Want:
    steps.take(len(groups))
    demand = demands[who[0]]
    suited = tuple(number for number, group in enumerate(groups) if demand.suits_group(group))
    return Want(sum(demands[place].count for place in who), len(who), suited)


def _whole_names(
    demands: Sequence[ClaimDemand],
    wholes: Sequence[Sequence[int]],
    division: Division,
    names: Sequence[Sequence[str]],
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The devices that go whole, the first of each group, by the demands' places."""
    left = [iter(of_group) for of_group in names]
    for who, flow in zip(wholes, division.whole, strict=True):
        taken = (name for group, units in sorted(flow.items()) for name in islice(left[group], units))
        for place in who:
            yield place, tuple(islice(taken, demands[place].count))


def _shared_names(
    shares: Sequence[Sequence[int]],
    division: Division,
    names: Sequence[Sequence[str]],
    free: Sequence[int],
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Of which devices each demand gets a share, by the demands' places."""
    dealt = [one for who, flow in zip(shares, division.shared, strict=True) for one in _dealt(who, flow)]
    turns = [_Turns(of_group, each) for of_group, each in zip(names, free, strict=True)]
    for _, flow in dealt:
        for group, units in flow.items():
            turns[group].expect(units)
    for place, flow in dealt:
        yield place, tuple(name for group, units in flow.items() for name in turns[group].next(units))


def _dealt(who: Sequence[int], flow: Mapping[int, int]) -> list[tuple[int, dict[int, int]]]:
    """What of the flow each of the demands gets, by place: dealt round, so that none gets of a group more than its
    part, which is as many as the group has devices at most."""
    each: list[defaultdict[int, int]] = [defaultdict(int) for _ in who]
    units = (group for group, count in sorted(flow.items()) for _ in range(count))
    for number, group in enumerate(units):
        each[number % len(who)][group] += 1
    return [(place, dict(of_demand)) for place, of_demand in zip(who, each, strict=True)]


class _Turns:
    """Hands out shares of a group's devices in turn, of as few devices as will do; none twice to one demand."""

    def __init__(self, names: Sequence[str], each: int) -> None:
        self._names = names
        self._each = each
        self._total = 0
        self._most = 0
        self._next = 0

    def expect(self, units: int) -> None:
        """So many will be asked for together. To be called for all before the first."""
        self._total += units
        self._most = max(self._most, units)

    def next(self, units: int) -> list[str]:
        """Shares of so many different devices."""
        devices = max(self._most, -(-self._total // self._each))
        start, self._next = self._next, self._next + units
        return [self._names[number % devices] for number in range(start, start + units)]
