"""Searches for pods to evict that found none, so that the next search covers only nodes that have changed since.

To search a whole cluster takes long, and a pod may wait for ever. In memory; pure.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

REMEMBERED = 4
"""Searches remembered for one pod: with and without spared pods, and nodes that its scheduler refused."""


@dataclass(frozen=True, slots=True)
class _Search:
    """A search that found no pods: the number of the last change before it, and the nodes where the next search
    may have another result although nothing has changed."""

    change: int
    recheck: frozenset[str]


@dataclass(slots=True)
class VictimlessSearches:
    """The latest searches for one pod that found no pods to evict, by what was searched for."""

    _searches: dict[Hashable, _Search] = field(default_factory=dict)

    def since(self, wanted: Hashable) -> int | None:
        """The number of the last change before such a search; None if there was none, or it found pods."""
        search = self._searches.get(wanted)
        return search.change if search is not None else None

    def recheck(self, wanted: Hashable) -> frozenset[str]:
        """The nodes that the next search covers in any case."""
        search = self._searches.get(wanted)
        return search.recheck if search is not None else frozenset()

    def remember(self, wanted: Hashable, change: int, recheck: Collection[str]) -> None:
        """Note that a search found no pods."""
        self.forget(wanted)
        self._searches[wanted] = _Search(change, frozenset(recheck))
        if len(self._searches) > REMEMBERED:
            del self._searches[next(iter(self._searches))]

    def forget(self, wanted: Hashable) -> None:
        """Note that a search found pods to evict."""
        self._searches.pop(wanted, None)
