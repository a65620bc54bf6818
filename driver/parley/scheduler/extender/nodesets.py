"""Interns sets of nodes, and the answers that reject all nodes of a set, which are the same for many pods.

A scheduler names the nodes that pass its filters in a different order each time, because it filters in parallel.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from parley.scheduler.extender import wire

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_REMEMBERED = 32
"""How many of the latest sets and answers are kept here; waiting pods keep references to theirs."""

Nodes = frozenset[str]


class _Latest(Generic[K, V]):
    """A small LRU cache."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of the key, made if it is not cached."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


class NodeSets:
    """Returns the one instance of each set of nodes, and of the answer that rejects all of its nodes."""

    def __init__(self) -> None:
        self._sets: _Latest[Nodes, Nodes] = _Latest()
        self._refusals: _Latest[tuple[Nodes, str], bytes] = _Latest()

    def of(self, names: Sequence[str]) -> Nodes:
        """The set of the nodes with these names."""
        found = frozenset(names)
        return self._sets.get(found, lambda: found)

    def refusal(self, nodes: Nodes, why: str) -> bytes:
        """The answer to a filter call that rejects all of the nodes."""
        return self._refusals.get((nodes, why), lambda: wire.passed((), sorted(nodes), why))
