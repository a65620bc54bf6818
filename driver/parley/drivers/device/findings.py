"""A cache of search results: which nodes have devices for a pod's demands. In memory.

For one claim, devices are counted; for several together, an assignment has to be searched. Many pods have equal
demands, few nodes change in between, and many nodes are alike: so each result is computed once. It is cached with
the stock that was searched, which the inventory replaces whenever it changes.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import islice

from parley.drivers.device.flow import OutOfSteps, Steps
from parley.drivers.device.packing import ClaimDemand, Group, Packing, Stock, pack

STEPS_PER_NODE = 20_000
"""The most steps to search one node: about 10 ms, far more than real pods need."""

STEPS_PER_CALL = 60_000
"""The most steps of all searches in one call: the event loop is blocked meanwhile."""

STEPS_FORESEEING = 1_000
"""The most steps to search one node in a hypothetical state: there may be hundreds for one decision."""

COUNTED = 4
"""The most demands that are counted one by one before a search: often one of them fails already."""

DEMANDS = 256
"""The most different demands that are cached."""

SHAPES = 1024
"""The most different stocks that are cached for each."""

RECENT = 16
"""For so many of them, those that were asked for last, also the nodes: what each node had then is kept with it."""

Demands = tuple[ClaimDemand, ...]
Shape = frozenset[tuple[Group, int]]
"""The properties of a stock that determine the result: the number of devices in each group."""


class NodeFinding(Enum):
    """The search result for a node."""

    ROOM = "has devices for all demands"
    NO_ROOM = "has not"
    TOO_LONG = "not found out in as many steps as a search may have"


class _Known:
    """The cached results for some demands."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[Stock, NodeFinding]] = {}
        self._shapes: dict[Shape, NodeFinding] = {}

    def find(self, node: str, stock: Stock, search: Callable[[], NodeFinding | None]) -> NodeFinding | None:
        """The cached result for the node; if there is none, that of the search."""
        known = self.nodes.get(node)
        if known is not None and known[0] is stock:
            return known[1]
        shape = frozenset((group, len(names)) for group, names in stock.items())
        finding = self._shapes.get(shape) or search()
        if finding is not None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            self._shapes[shape] = finding
            self.nodes[node] = stock, finding
        return finding


class Findings:
    """The cached results for all demands. `stock` returns the free devices of a node."""

    def __init__(self, stock: Callable[[str], Stock]) -> None:
        self._stock = stock
        self._known: dict[Demands, _Known] = {}

    def forget(self, node: str) -> None:
        """Drops the results for a node that is gone."""
        for known in self._known.values():
            known.nodes.pop(node, None)

    def pack(self, demands: Demands, node: str) -> Packing | None:
        """Devices of the node for the demands. Raises OutOfSteps where `each` returns TOO_LONG."""
        return pack(demands, self._stock(node), Steps(STEPS_PER_NODE))

    def would_fit(self, demands: Demands, stock: Stock) -> bool:
        """Whether a hypothetical stock has devices for the demands; False if a short search does not find any."""
        return _searched(demands, stock, Steps(STEPS_FORESEEING), STEPS_FORESEEING) is NodeFinding.ROOM

    def each(
        self, demands: Demands, nodes: Iterable[str], steps: Steps, at_most: int
    ) -> Iterator[tuple[str, NodeFinding | None]]:
        """The results for the nodes, one after the other, within the steps that are left.

        A node gets `at_most` so many steps. None if that was not enough: the next call searches again.
        """
        if len(demands) == 1:
            yield from ((node, _counted(demands[0], self._stock(node), steps, at_most)) for node in nodes)
            return
        known = self._of(demands)
        for node in nodes:
            stock = self._stock(node)
            search = partial(_searched, demands, stock, steps, at_most)
            yield node, known.find(node, stock, search) if stock else NodeFinding.NO_ROOM

    def has_room(self, demands: Demands, node: str, steps: int) -> bool:
        """Whether the node may have devices for the demands, after a search with so many steps."""
        stock = self._stock(node)
        if any(demand.supply(stock) < demand.count for demand in demands[:COUNTED]):
            return False
        if len(demands) == 1:
            return True
        ((_, found),) = self.each(demands, (node,), Steps(steps), steps)
        return found in (NodeFinding.ROOM, None)

    def _of(self, demands: Demands) -> _Known:
        known = self._known.pop(demands, None) or _Known()
        if len(self._known) >= DEMANDS:
            del self._known[next(iter(self._known))]  # the least recently used
        self._known[demands] = known
        if (earlier := next(islice(reversed(self._known.values()), RECENT, None), None)) is not None:
            earlier.nodes.clear()
        return known


def _counted(demand: ClaimDemand, stock: Stock, steps: Steps, at_most: int) -> NodeFinding | None:
    """The result by counting, with a step for each group. None if fewer steps are left."""
    if len(stock) > at_most or not steps.try_take(len(stock)):
        return None
    return NodeFinding.ROOM if demand.supply(stock) >= demand.count else NodeFinding.NO_ROOM


def _searched(demands: Demands, stock: Stock, steps: Steps, at_most: int) -> NodeFinding | None:
    """The result of a search. None if it ran out of steps."""
    allowed = Steps(min(at_most, STEPS_PER_NODE, steps.left))
    before = allowed.left
    try:
        return NodeFinding.NO_ROOM if pack(demands, stock, allowed) is None else NodeFinding.ROOM
    except OutOfSteps:
        return NodeFinding.TOO_LONG if before == STEPS_PER_NODE else None
    finally:
        steps.left -= before - max(allowed.left, 0)
