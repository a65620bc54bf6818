"""Searches for pods to evict that found nobody, so that the next one looks only where something has changed since.

To look at a whole cluster takes long, and a pod may wait for ever. In memory; pure.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

REMEMBERED = 4
"""Searches for one pod: with and without the pods that are spared, and the nodes that its scheduler refused."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search in vain was based on: the number of the last change before it, and the nodes where it would
    find something else although nothing changed."""

    change: int
    again: frozenset[str]


@dataclass(slots=True)
class InVain:
    """The latest searches for one pod that found nobody, by what was looked for."""

    _found: dict[Hashable, _Found] = field(default_factory=dict)

    def since(self, wanted: Hashable) -> int | None:
        """The number of the last change before such a search; None if there was none, or it found somebody."""
        found = self._found.get(wanted)
        return found.change if found is not None else None

    def again(self, wanted: Hashable) -> frozenset[str]:
        """The nodes to look at in any case."""
        found = self._found.get(wanted)
        return found.again if found is not None else frozenset()

    def remember(self, wanted: Hashable, change: int, again: Collection[str]) -> None:
        """A search found nobody."""
        self.forget(wanted)
        self._found[wanted] = _Found(change, frozenset(again))
        if len(self._found) > REMEMBERED:
            del self._found[next(iter(self._found))]

    def forget(self, wanted: Hashable) -> None:
        """A search found somebody."""
        self._found.pop(wanted, None)
