"""Which nodes have devices for some demands, as far as that was found out. In memory.

What one claim asks for is counted. For several together a way has to be searched. Many pods ask for the same of
nodes of which few have changed, and many nodes are alike: each is searched once. What was found is kept with the
stock that it was found in, which the inventory replaces whenever it changes.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import islice

from parley.drivers.device.flow import OutOfSteps, Steps
from parley.drivers.device.packing import ClaimDemand, Group, Packing, Stock, pack

STEPS_PER_NODE = 20_000
"""So long the search for devices of one node may be: about 10 ms. Far more than pods of real life need."""

STEPS_PER_CALL = 60_000
"""And the searches of one call together: the event loop does nothing else meanwhile."""

STEPS_FORESEEING = 1_000
"""And the search of one node as it might be: there may be hundreds for one decision."""

COUNTED = 4
"""Of several demands that were not searched for yet, so many are counted one by one: often that tells already."""

DEMANDS = 256
"""So many different demands are remembered."""

SHAPES = 1024
"""So many different stocks are remembered for each."""

RECENT = 16
"""For so many of them, those that were asked for last, also the nodes: what each node had then is kept with it."""

Demands = tuple[ClaimDemand, ...]
Shape = frozenset[tuple[Group, int]]
"""All that decides about a stock: how many devices of which group."""


class NodeFinding(Enum):
    """What is known of a node."""

    ROOM = "has devices for all demands"
    NO_ROOM = "has not"
    TOO_LONG = "not found out in as many steps as a search may have"


class _Known:
    """What is known for some demands."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[Stock, NodeFinding]] = {}
        self._shapes: dict[Shape, NodeFinding] = {}

    def find(self, node: str, stock: Stock, search: Callable[[], NodeFinding | None]) -> NodeFinding | None:
        """What is known of the node; if nothing is, what the search finds."""
        known = self.nodes.get(node)
        if known is not None and known[0] is stock:
            return known[1]
        shape = frozenset((group, len(names)) for group, names in stock.items())
        found = self._shapes.get(shape) or search()
        if found is not None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            self._shapes[shape] = found
            self.nodes[node] = stock, found
        return found


class Findings:
    """What is known for all demands. `stock` gives what a node has free."""

    def __init__(self, stock: Callable[[str], Stock]) -> None:
        self._stock = stock
        self._known: dict[Demands, _Known] = {}

    def forget(self, node: str) -> None:
        """The node is gone."""
        for known in self._known.values():
            known.nodes.pop(node, None)

    def pack(self, demands: Demands, node: str) -> Packing | None:
        """Devices of the node for the demands. Raises OutOfSteps where `each` returns TOO_LONG."""
        return pack(demands, self._stock(node), Steps(STEPS_PER_NODE))

    def would_fit(self, demands: Demands, stock: Stock) -> bool:
        """Whether there are devices for the demands in what a node might have free, if that is found out soon."""
        return _searched(demands, stock, Steps(STEPS_FORESEEING), STEPS_FORESEEING) is NodeFinding.ROOM

    def each(
        self, demands: Demands, nodes: Iterable[str], steps: Steps, at_most: int
    ) -> Iterator[tuple[str, NodeFinding | None]]:
        """What can be found out about the nodes, one after the other, with the steps that are left.

        A node gets `at_most` so many. None where that was not enough: asked again, it is tried again.
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
        """Whether the node has devices for the demands, as far as that is found out with so many steps."""
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
            del self._known[next(iter(self._known))]  # the one that was not asked for the longest
        self._known[demands] = known
        if (earlier := next(islice(reversed(self._known.values()), RECENT, None), None)) is not None:
            earlier.nodes.clear()
        return known


def _counted(demand: ClaimDemand, stock: Stock, steps: Steps, at_most: int) -> NodeFinding | None:
    """A step for each group. None if there were not so many left."""
    if len(stock) > at_most or not steps.try_take(len(stock)):
        return None
    return NodeFinding.ROOM if demand.supply(stock) >= demand.count else NodeFinding.NO_ROOM


def _searched(demands: Demands, stock: Stock, steps: Steps, at_most: int) -> NodeFinding | None:
    """None if the search ended before it was known."""
    allowed = Steps(min(at_most, STEPS_PER_NODE, steps.left))
    before = allowed.left
    try:
        return NodeFinding.NO_ROOM if pack(demands, stock, allowed) is None else NodeFinding.ROOM
    except OutOfSteps:
        return NodeFinding.TOO_LONG if before == STEPS_PER_NODE else None
    finally:
        steps.left -= before - max(allowed.left, 0)
