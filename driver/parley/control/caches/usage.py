"""How much of each node is used: by bound pods, and by pods whose node is selected but not seen bound yet."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from parley.negotiation.fit import Amounts


@dataclass(frozen=True, slots=True)
class _Share:
    node: str
    amounts: Amounts


def _unheard(_: str) -> None:
    """Nobody waits."""


class Usage:
    """Sums per node, kept up to date pod by pod. `less` is called with a node that a pod uses no more."""

    def __init__(self, less: Callable[[str], None] = _unheard) -> None:
        self._less = less
        self._shares: dict[str, _Share] = {}
        self._used: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._pods: defaultdict[str, int] = defaultdict(int)

    def node_of(self, uid: str) -> str | None:
        """The node that the pod counts for, or None."""
        share = self._shares.get(uid)
        return share.node if share else None

    def put(self, uid: str, node: str, amounts: Amounts) -> None:
        """The pod uses that much of the node; replaces what was counted for it."""
        before = self._remove(uid)
        self._shares[uid] = _Share(node, amounts)
        self._pods[node] += 1
        for name, amount in amounts.items():
            self._used[node][name] += amount
        if before is not None and before != node:
            self._less(before)

    def remove(self, uid: str) -> None:
        """The pod uses nothing any more. Idempotent."""
        before = self._remove(uid)
        if before is not None:
            self._less(before)

    def _remove(self, uid: str) -> str | None:
        """The node that the pod used."""
        share = self._shares.pop(uid, None)
        if share is None:
            return None
        self._pods[share.node] -= 1
        for name, amount in share.amounts.items():
            self._used[share.node][name] -= amount
        if not self._pods[share.node]:
            self._pods.pop(share.node)
            self._used.pop(share.node, None)
        return share.node

    def used(self, node: str) -> Amounts:
        """Sums over the node's pods."""
        return self._used.get(node, {})

    def pods(self, node: str) -> int:
        """How many pods count for the node."""
        return self._pods.get(node, 0)
