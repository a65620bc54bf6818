"""How much of each node is used: by bound pods, and by pods whose node is selected but not seen bound yet."""

from collections import defaultdict
from dataclasses import dataclass

from parley.negotiation.fit import Amounts


@dataclass(frozen=True, slots=True)
class _Share:
    node: str
    amounts: Amounts


class Usage:
    """Sums per node, kept up to date pod by pod."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._used: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._pods: defaultdict[str, int] = defaultdict(int)

    def node_of(self, uid: str) -> str | None:
        """The node that the pod counts for, or None."""
        share = self._shares.get(uid)
        return share.node if share else None

    def put(self, uid: str, node: str, amounts: Amounts) -> None:
        """The pod uses that much of the node; replaces what was counted for it."""
        if uid in self._shares:
            self.remove(uid)
        self._shares[uid] = _Share(node, amounts)
        self._pods[node] += 1
        for name, amount in amounts.items():
            self._used[node][name] += amount

    def remove(self, uid: str) -> bool:
        """The pod uses nothing any more; returns whether it did."""
        share = self._shares.pop(uid, None)
        if share is None:
            return False
        self._pods[share.node] -= 1
        for name, amount in share.amounts.items():
            self._used[share.node][name] -= amount
        if not self._pods[share.node]:
            self._pods.pop(share.node)
            self._used.pop(share.node, None)
        return True

    def used(self, node: str) -> Amounts:
        """Sums over the node's pods."""
        return self._used.get(node, {})

    def pods(self, node: str) -> int:
        """How many pods count for the node."""
        return self._pods.get(node, 0)
