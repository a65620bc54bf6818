"""The pods that have to be reconciled before others may allocate, and those that gave way to them. Pure.

Waiting lines and the work queue's order make it likely that, of pods that want the same, the one with the highest
priority is served first. `Pods.overtakes` makes sure of it when a pod is about to be served: the queue hands out
some keys by their age alone, and one pod's report may still be being written when others are reconciled.
"""

from collections import Counter
from collections.abc import Collection

from parley.kube.cache import Key

MOST_YIELDS = 8
"""How often in a row a pod gives way to others that were just created: there may always be some."""

YIELD_SECONDS = 10.0
"""For how long at a stretch a pod gives way to others that were woken: a tenant may have hundreds of pods that
every change wakes and that can't be served."""


class Precedence:
    """The keys of pods that are reconciled before others, and of those that gave way to them. All but those that
    gave way are in the work queue."""

    def __init__(self) -> None:
        self._woken: set[Key] = set()
        self._gave_way: dict[Key, None] = {}
        self._added: dict[Key, int] = {}
        """The negated priority of each pod that was created and not reconciled yet."""
        self._ranks: Counter[int] = Counter()

    @property
    def woken(self) -> Collection[Key]:
        """Pods at the head of lines that a change may help, pods that start over, and pods that gave way."""
        return self._woken

    def wake(self, key: Key) -> None:
        """Note that the pod may be served at its next reconciliation, which is due: a change may help it, or it
        starts over, or it keeps its turn."""
        self._woken.add(key)

    def added(self, key: Key, rank: int) -> None:
        """Note that the pod, or a claim generated for it, was created. `rank` is its negated priority."""
        if key not in self._added:
            self._added[key] = rank
            self._ranks[rank] += 1

    def give_way(self, key: Key) -> None:
        """Note that the pod is not served now. No pod overtakes it until it is reconciled again."""
        self._woken.add(key)
        self._gave_way[key] = None

    def reconcile_started(self, key: Key) -> None:
        """Note that the pod's reconciliation begins, or that the pod is gone."""
        self._woken.discard(key)
        self._gave_way.pop(key, None)
        if (rank := self._added.pop(key, None)) is not None:
            self._ranks -= Counter((rank,))

    def next(self) -> Collection[Key]:
        """The pods that gave way, if no pod that they gave way to is left: the caller requeues them."""
        if not self._gave_way or self._woken != self._gave_way.keys():
            return ()
        turn = list(self._gave_way)
        self._gave_way.clear()
        return turn

    def any_added_above(self, rank: int) -> bool:
        """Whether a pod of a smaller rank was created and has not been reconciled yet."""
        return any(other < rank for other in self._ranks)
