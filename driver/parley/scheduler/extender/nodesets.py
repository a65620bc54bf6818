"""Sets of nodes, and what is answered about all of one: the same for many pods, so that there is one of each.

A scheduler names the nodes that pass its filters in another order each time: it filters them in parallel.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from parley.scheduler.extender import wire

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_REMEMBERED = 32
"""So many of the latest sets and answers; those of pods that wait stay as long as these."""

Nodes = frozenset[str]


class _Latest(Generic[K, V]):
    """The latest few values by key."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The one that is known, or a new one."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


class NodeSets:
    """Hands out sets of nodes and refusals of them."""

    def __init__(self) -> None:
        self._sets: _Latest[Nodes, Nodes] = _Latest()
        self._refusals: _Latest[tuple[Nodes, str], bytes] = _Latest()

    def of(self, names: Sequence[str]) -> Nodes:
        """The set of these."""
        found = frozenset(names)
        return self._sets.get(found, lambda: found)

    def refusal(self, nodes: Nodes, why: str) -> bytes:
        """The answer to a filter that none of the nodes will do."""
        return self._refusals.get((nodes, why), lambda: wire.passed((), sorted(nodes), why))
