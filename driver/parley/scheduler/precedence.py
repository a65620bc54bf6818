"""Which waiting pods have to be reconciled before others are served, and which gave way to them. Pure.

Waiting lines and the work queue's order make it likely that of pods that want the same the one with the highest
priority is served first. That it is, is seen to where a pod is about to be served (`Pods.overtakes`): the queue
hands out some keys by their age alone, and a report about one pod may still be written when others are looked at.
"""

from collections import Counter
from collections.abc import Collection

from parley.kube.cache import Key

GIVES_WAY = 8
"""So often in a row a pod gives way to others that have just come: there may always be some."""

GIVES_WAY_SECONDS = 10.0
"""So long in a row a pod gives way to others that were woken: a tenant may have hundreds of pods that every change
wakes and that can't be served."""


class Precedence:
    """Keys of the pods that come before others, and of those that wait for them. All but those that gave way are
    in the work queue."""

    def __init__(self) -> None:
        self._woken: set[Key] = set()
        self._gave_way: dict[Key, None] = {}
        self._came: dict[Key, int] = {}
        """Each with its negated priority."""
        self._ranks: Counter[int] = Counter()

    @property
    def woken(self) -> Collection[Key]:
        """Heads of lines that a change may help, pods that start over, and those that gave way."""
        return self._woken

    def wake(self, key: Key) -> None:
        """A change may help the pod, or it starts over, or keeps its turn: it is looked at again in a moment, and
        may be served then."""
        self._woken.add(key)

    def came(self, key: Key, rank: int) -> None:
        """The pod, or a claim that was made for it, is there now. `rank` is its negated priority."""
        if key not in self._came:
            self._came[key] = rank
            self._ranks[rank] += 1

    def give_way(self, key: Key) -> None:
        """The pod is not served now. Nobody overtakes it until it is looked at again."""
        self._woken.add(key)
        self._gave_way[key] = None

    def looking_at(self, key: Key) -> None:
        """The pod is reconciled now, or is gone."""
        self._woken.discard(key)
        self._gave_way.pop(key, None)
        if (rank := self._came.pop(key, None)) is not None:
            self._ranks -= Counter((rank,))

    def next(self) -> Collection[Key]:
        """Those that gave way, if nobody is left that they gave way to: they are to be looked at now."""
        if not self._gave_way or self._woken != self._gave_way.keys():
            return ()
        turn = list(self._gave_way)
        self._gave_way.clear()
        return turn

    def someone_came_above(self, rank: int) -> bool:
        """Whether one of a smaller rank has come and was not looked at since."""
        return any(other < rank for other in self._ranks)
