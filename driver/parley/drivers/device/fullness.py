"""The nodes in the order of how full they are: by how many devices, or shares, of each kind are free there.

Kept up to date node by node, as devices are held and released, so that finding the fullest node that will do costs
no more in a large cluster than in a small one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple

from parley.drivers.device.packing import ClaimDemand, DeviceKind, Stock

AT_A_LEVEL = 1000
"""Of nodes with equally many devices free, so many are handed out: the others are as good, and may be asked about
in any order."""

KINDS = 256
"""Of more different kinds the first are looked at."""

PENDING = 64
"""When so many nodes have changed they are put in order again, without a question. Otherwise the first question
after a start would do it for all nodes at once."""

DEMANDS = 8
"""Of a pod that asks for more in different ways every device counts."""


class Level(NamedTuple):
    """What a node has free of a kind: `whole` devices, or else shares of devices that are partly used."""

    kind: DeviceKind
    whole: bool
    free: int


def suits_any(demands: Sequence[ClaimDemand], kind: DeviceKind) -> bool:
    """Whether devices of the kind are of use for one of the demands."""
    return len(demands) > DEMANDS or any(demand.suits(kind) for demand in demands)


def free_levels(stock: Stock) -> list[Level]:
    """What there is of each kind."""
    free: defaultdict[tuple[DeviceKind, bool], int] = defaultdict(int)
    for (kind, shares), names in stock.items():
        whole = shares == kind.slices
        free[kind, whole] += len(names) if whole else shares * len(names)
    return [Level(kind, whole, count) for (kind, whole), count in free.items()]


class Fullness:
    """All nodes, by what they have free. `stock` gives that of one node."""

    def __init__(self, stock: Callable[[str], Stock]) -> None:
        self._stock = stock
        self._levels: dict[str, list[Level]] = {}
        self._nodes: defaultdict[Level, dict[str, None]] = defaultdict(dict)
        self._of_kind: dict[DeviceKind, set[Level]] = {}
        self._changed: dict[str, None] = {}

    def changed(self, node: str) -> None:
        """The node has more, less or other devices free."""
        self._changed[node] = None
        if len(self._changed) >= PENDING:
            self._catch_up()

    def fullest(self, demands: Sequence[ClaimDemand]) -> Iterator[str]:
        """The nodes that have something of use free, in this order: those where shares of partly used devices will
        do, those that have enough devices of one kind, and those that have fewer. Of each the fullest first, and a
        node more than once if it has several kinds."""
        levels = [level for kind in islice(self._kinds_of_use(demands), KINDS) for level in self._of_kind[kind]]
        devices, shares = _wanted(demands)
        begun = [] if devices else [level for level in levels if not level.whole]
        whole = [level for level in levels if level.whole]
        for level in (*_in_order(begun, shares), *_in_order(whole, max(devices, 1))):
            yield from tuple(islice(self._nodes.get(level, ()), AT_A_LEVEL))

    def nodes_of_use(self, demands: Sequence[ClaimDemand]) -> Set[str] | None:
        """The nodes that have something of use free, in no order; None if they are of more kinds than are looked
        at."""
        kinds = list(islice(self._kinds_of_use(demands), KINDS + 1))
        if len(kinds) > KINDS:
            return None
        return {node for kind in kinds for level in self._of_kind[kind] for node in self._nodes[level]}

    def _kinds_of_use(self, demands: Sequence[ClaimDemand]) -> Iterator[DeviceKind]:
        self._catch_up()
        different = list(dict.fromkeys(demands))
        return (kind for kind in sorted(self._of_kind) if suits_any(different, kind))

    def room_left(self, demands: Sequence[ClaimDemand], nodes: Iterable[str]) -> dict[str, float]:
        """How many whole devices of use are left on each of the nodes, once the demands are met there.

        Shares are taken from devices that are partly used, if those have enough: then no device is broken into,
        and what is left is a part of one, below 1. Where one is broken into, one more counts as left than is.
        """
        self._catch_up()
        different = list(dict.fromkeys(demands))
        of_use: dict[DeviceKind, bool] = {}
        devices, shares = _wanted(demands)
        left: dict[str, float] = {}
        for node in nodes:
            whole = begun = 0
            for level in self._levels.get(node, ()):
                kind = level.kind
                if kind not in of_use:
                    of_use[kind] = suits_any(different, kind)
                if of_use[kind]:
                    whole, begun = (whole + level.free, begun) if level.whole else (whole, begun + level.free)
            left[node] = _left(whole, begun, devices, shares)
        return left

    def _catch_up(self) -> None:
        for node in self._changed:
            for level in self._levels.pop(node, ()):
                self._remove(level, node)
            if levels := free_levels(self._stock(node)):
                self._levels[node] = levels
            for level in levels:
                self._nodes[level][node] = None
                self._of_kind.setdefault(level.kind, set()).add(level)
        self._changed.clear()

    def _remove(self, level: Level, node: str) -> None:
        nodes = self._nodes[level]
        del nodes[node]
        if nodes:
            return
        del self._nodes[level]
        self._of_kind[level.kind].discard(level)
        if not self._of_kind[level.kind]:
            del self._of_kind[level.kind]


def _wanted(demands: Sequence[ClaimDemand]) -> tuple[int, int]:
    """How many whole devices, and how many shares."""
    whole = sum(demand.count for demand in demands if not demand.shared)
    return whole, sum(demand.count for demand in demands) - whole


def _left(whole: int, begun: int, devices: int, shares: int) -> float:
    """Of so many whole devices, and shares of partly used ones."""
    if devices or not shares:
        return max(whole - devices, 0)
    return (begun - shares) / (begun - shares + 1) if begun >= shares else 1 + whole


def _in_order(levels: Iterable[Level], wanted: int) -> list[Level]:
    """Those with enough, the least first; then those with too little, the most first."""
    return sorted(levels, key=lambda level: (level.free < wanted, abs(level.free - wanted), level.kind))
