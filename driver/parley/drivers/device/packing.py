"""Finds devices on one node for several claims at once. Pure.

Devices that are alike (same properties, same number of free shares) are interchangeable, and so are claims with
equal demands: `dividing` decides how many devices of each group they get, and this file selects the devices by
name. Small devices and partly used ones are taken first, so that large and untouched ones stay whole.

The search is exact: if the claims fit together in any way, one is found, unless that exceeds the limit of steps.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from parley.drivers.device.dividing import Division, Supply, divide
from parley.drivers.device.flow import Steps, Want

Bytes = int | Fraction
"""An exact amount of memory; whole numbers are ints, because they are compared very often."""


def exact(amount: Fraction) -> Bytes:
    """The amount of memory as `Bytes`."""
    return amount.numerator if amount.denominator == 1 else amount


@dataclass(frozen=True, slots=True, order=True)
class DeviceKind:
    """The properties of a device that matter to claims: memory in bytes, number of shares, and model."""

    memory: Bytes
    slices: int
    model: str


@dataclass(frozen=True, slots=True)
class ClaimDemand:
    """The devices that one claim requests: `count` different ones, whole or one share of each.

    `memory` is the least memory in bytes of each device, or of each share: a share has an equal part of the
    device's memory.
    """

    count: int
    model: str | None
    memory: Bytes
    shared: bool

    def suits(self, kind: DeviceKind) -> bool:
        """Whether a free device of that kind is suitable."""
        if self.model is not None and self.model != kind.model:
            return False
        return kind.memory >= (self.memory * kind.slices if self.shared else self.memory)

    def supply(self, stock: "Stock") -> int:
        """The number of suitable free devices: one claim alone needs `count`."""
        return sum(len(names) for group, names in stock.items() if self.suits_group(group))

    def suits_group(self, group: "Group") -> bool:
        """Whether devices of that kind with that many free shares are suitable."""
        kind, free = group
        return (self.shared or free == kind.slices) and self.suits(kind)


Group = tuple[DeviceKind, int]
"""Devices of a kind with that many free shares."""

Stock = Mapping[Group, tuple[str, ...]]
"""The free devices of a node by group; those without a free share are left out."""

Packing = tuple[tuple[str, ...], ...]
"""The names of the devices for each demand."""


_SORTING = 8
"""The steps that sorting takes for each group."""


def pack(demands: tuple[ClaimDemand, ...], stock: Stock, steps: Steps) -> Packing | None:
    """Devices for each demand, in the order of the demands, or None if they do not fit together.

    Raises OutOfSteps if the search exceeds the steps that are left.
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
    """The positions of demands that are equal (for whole devices, but for the count), the most selective first."""
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
    """The whole devices for each demand, by the demand's position: the first ones of each group."""
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
    """The devices of which each demand gets a share, by the demand's position."""
    dealt = [part for who, flow in zip(shares, division.shared, strict=True) for part in _dealt(who, flow)]
    round_robins = [_RoundRobin(of_group, each) for of_group, each in zip(names, free, strict=True)]
    for _, flow in dealt:
        for group, units in flow.items():
            round_robins[group].expect(units)
    for place, flow in dealt:
        yield place, tuple(name for group, units in flow.items() for name in round_robins[group].next(units))


def _dealt(who: Sequence[int], flow: Mapping[int, int]) -> list[tuple[int, dict[int, int]]]:
    """The part of the flow for each of the demands, by position: units are dealt in turn, so that no demand gets
    more of a group than the group has devices."""
    each: list[defaultdict[int, int]] = [defaultdict(int) for _ in who]
    units = (group for group, count in sorted(flow.items()) for _ in range(count))
    for number, group in enumerate(units):
        each[number % len(who)][group] += 1
    return [(place, dict(of_demand)) for place, of_demand in zip(who, each, strict=True)]


class _RoundRobin:
    """Hands out shares of a group's devices in turn, of as few as possible; no device twice to one demand."""

    def __init__(self, names: Sequence[str], each: int) -> None:
        self._names = names
        self._each = each
        self._total = 0
        self._most = 0
        self._next = 0

    def expect(self, units: int) -> None:
        """Announces a call of `next`. Announce all calls before the first one."""
        self._total += units
        self._most = max(self._most, units)

    def next(self, units: int) -> list[str]:
        """Shares of so many different devices."""
        devices = max(self._most, -(-self._total // self._each))
        start, self._next = self._next, self._next + units
        return [self._names[number % devices] for number in range(start, start + units)]
