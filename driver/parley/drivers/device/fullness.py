"""An index of nodes by how full they are: by how many devices, or shares, of each kind are free there.

It is updated node by node, as devices are held and released, so that finding the fullest suitable node costs no
more in a large cluster than in a small one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple

from parley.drivers.device.packing import ClaimDemand, DeviceKind, Stock

AT_A_LEVEL = 1000
"""The most nodes with equally many free devices that are returned: the others are as good, and may be asked about
in any order."""

KINDS = 256
"""The most different kinds of devices that a search uses."""

PENDING = 64
"""The number of changed nodes from which the index is updated before the next search. Otherwise the first search
after a start would do it for all nodes at once."""

DEMANDS = 8
"""The most different demands that are compared with kinds: with more, every device counts as suitable."""


class Level(NamedTuple):
    """The number of free devices of a kind on a node (`whole`), or of free shares of partly used ones."""

    kind: DeviceKind
    whole: bool
    free: int


def suits_any(demands: Sequence[ClaimDemand], kind: DeviceKind) -> bool:
    """Whether devices of the kind are suitable for one of the demands."""
    return len(demands) > DEMANDS or any(demand.suits(kind) for demand in demands)


def free_levels(stock: Stock) -> list[Level]:
    """The levels of a node with that stock."""
    free: defaultdict[tuple[DeviceKind, bool], int] = defaultdict(int)
    for (kind, shares), names in stock.items():
        whole = shares == kind.slices
        free[kind, whole] += len(names) if whole else shares * len(names)
    return [Level(kind, whole, count) for (kind, whole), count in free.items()]


class Fullness:
    """All nodes by their levels. `stock` returns the free devices of a node."""

    def __init__(self, stock: Callable[[str], Stock]) -> None:
        self._stock = stock
        self._levels: dict[str, list[Level]] = {}
        self._nodes: defaultdict[Level, dict[str, None]] = defaultdict(dict)
        self._of_kind: dict[DeviceKind, set[Level]] = {}
        self._changed: dict[str, None] = {}

    def changed(self, node: str) -> None:
        """Notes that the node's free devices changed."""
        self._changed[node] = None
        if len(self._changed) >= PENDING:
            self._catch_up()

    def fullest(self, demands: Sequence[ClaimDemand]) -> Iterator[str]:
        """The nodes with suitable free devices, in this order: those where shares of partly used devices are
        enough, those with enough devices of one kind, and those with fewer. In each group the fullest come first;
        a node may appear several times if it has several kinds."""
        levels = [level for kind in islice(self._kinds_of_use(demands), KINDS) for level in self._of_kind[kind]]
        devices, shares = _wanted(demands)
        begun = [] if devices else [level for level in levels if not level.whole]
        whole = [level for level in levels if level.whole]
        for level in (*_in_order(begun, shares), *_in_order(whole, max(devices, 1))):
            yield from tuple(islice(self._nodes.get(level, ()), AT_A_LEVEL))

    def nodes_of_use(self, demands: Sequence[ClaimDemand]) -> Set[str] | None:
        """The nodes with suitable free devices, in no order; None if more than `KINDS` kinds are suitable."""
        kinds = list(islice(self._kinds_of_use(demands), KINDS + 1))
        if len(kinds) > KINDS:
            return None
        return {node for kind in kinds for level in self._of_kind[kind] for node in self._nodes[level]}

    def _kinds_of_use(self, demands: Sequence[ClaimDemand]) -> Iterator[DeviceKind]:
        self._catch_up()
        different = list(dict.fromkeys(demands))
        return (kind for kind in sorted(self._of_kind) if suits_any(different, kind))

    def room_left(self, demands: Sequence[ClaimDemand], nodes: Iterable[str]) -> dict[str, float]:
        """How many suitable whole devices are left on each of the nodes, once the demands are met there.

        Shares are taken from partly used devices, if those have enough: then no whole device is split, and the
        result is below 1. If one has to be split, the result is one more than the whole devices there.
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
    """The numbers of whole devices and of shares in the demands."""
    whole = sum(demand.count for demand in demands if not demand.shared)
    return whole, sum(demand.count for demand in demands) - whole


def _left(whole: int, begun: int, devices: int, shares: int) -> float:
    """The room left of so many whole devices and `begun` shares (those of partly used devices)."""
    if devices or not shares:
        return max(whole - devices, 0)
    return (begun - shares) / (begun - shares + 1) if begun >= shares else 1 + whole


def _in_order(levels: Iterable[Level], wanted: int) -> list[Level]:
    """The levels with enough, the smallest first; then those with too little, the largest first."""
    return sorted(levels, key=lambda level: (level.free < wanted, abs(level.free - wanted), level.kind))
