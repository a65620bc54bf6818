"""Finds devices on one node for several claims at once. Pure.

Devices that are alike (same properties, same number of free shares) are interchangeable, so the search runs
over groups of them and stays small. It is exact: if the claims fit together in any way, a way is found.
Small devices and partly used ones are tried first, so that large and untouched ones stay whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

Bytes = int | Fraction
"""Exact; whole numbers as such, since they are compared all the time."""


def exact(amount: Fraction) -> Bytes:
    """The same amount of memory."""
    return amount.numerator if amount.denominator == 1 else amount


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What tells devices apart for a claim: memory in bytes, and the number of shares it is split into."""

    memory: Bytes
    slices: int
    model: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What one claim asks for: `count` different devices, whole or one share of each.

    `memory` is the least memory in bytes of each device, or of each share: a share has an equal part of the
    device's memory.
    """

    count: int
    model: str | None
    memory: Bytes
    shared: bool

    def suits(self, kind: Kind) -> bool:
        """Whether a free device of that kind would do."""
        if self.model is not None and self.model != kind.model:
            return False
        return kind.memory >= (self.memory * kind.slices if self.shared else self.memory)


Group = tuple[Kind, int]
"""Devices of a kind with that many free shares."""

Stock = Mapping[Group, tuple[str, ...]]
"""The free devices of a node by group; those without a free share are left out."""


def pack(demands: tuple[Demand, ...], stock: Stock) -> tuple[tuple[str, ...], ...] | None:
    """Devices for each demand, in the order of the demands, or None if they do not fit together."""
    order = sorted(
        range(len(demands)), key=lambda i: (demands[i].shared, -demands[i].count, demands[i].model is None)
    )
    chosen = _search(
        tuple(demands[i] for i in order), {group: names for group, names in stock.items() if names}, {}
    )
    if chosen is None:
        return None
    by_index = dict(zip(order, chosen, strict=True))
    return tuple(by_index[i] for i in range(len(demands)))


def _search(
    demands: tuple[Demand, ...], stock: Mapping[Group, tuple[str, ...]], dead: dict[object, bool]
) -> tuple[tuple[str, ...], ...] | None:
    if not demands:
        return ()
    state = (len(demands), tuple(sorted((group, len(names)) for group, names in stock.items())))
    if state in dead:
        return None
    for names, rest in _ways(demands[0], stock):
        if (later := _search(demands[1:], rest, dead)) is not None:
            return (names, *later)
    dead[state] = True
    return None


def _ways(
    demand: Demand, stock: Mapping[Group, tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Mapping[Group, tuple[str, ...]]]]:
    """Each way to serve the demand, and what is left of the stock then."""
    groups = [group for group in sorted(stock) if _usable(demand, group)]
    for counts in _compositions(demand.count, [len(stock[group]) for group in groups]):
        taken = {group: stock[group][:n] for group, n in zip(groups, counts, strict=True) if n}
        yield tuple(sorted(name for names in taken.values() for name in names)), _left(demand, stock, taken)


def _usable(demand: Demand, group: Group) -> bool:
    kind, free = group
    return demand.suits(kind) and (demand.shared or free == kind.slices)


def _left(
    demand: Demand, stock: Mapping[Group, tuple[str, ...]], taken: Mapping[Group, tuple[str, ...]]
) -> Mapping[Group, tuple[str, ...]]:
    left = dict(stock)
    for (kind, free), names in taken.items():
        left[kind, free] = left[kind, free][len(names) :]
        if demand.shared and free > 1:
            left[kind, free - 1] = tuple(sorted((*left.get((kind, free - 1), ()), *names)))
    return {group: names for group, names in left.items() if names}


def _compositions(total: int, limits: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of one number per limit, each within it; as much as possible first."""
    if not limits:
        if total == 0:
            yield ()
        return
    if total > sum(limits):
        return
    for first in range(min(total, limits[0]), -1, -1):
        for rest in _compositions(total - first, limits[1:]):
            yield (first, *rest)
