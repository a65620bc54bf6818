"""How much of each node is used: by bound pods, and by pods whose node is selected but not seen bound yet."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from parley.negotiation.preemption import Sum
from parley.negotiation.requests import Amounts


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod uses of a node. `leaving`: the pod is being deleted."""

    node: str
    amounts: Amounts
    priority: int = 0
    leaving: bool = False


def _unheard(_: str) -> None:
    """Nobody waits."""


def _less(before: Amounts, now: Amounts) -> bool:
    """Whether anything got less."""
    return any(now.get(name, 0) < amount for name, amount in before.items())


class _Node:
    """Sums over the pods of one node."""

    __slots__ = ("by_priority", "leaving", "pods", "used")

    def __init__(self) -> None:
        self.used: defaultdict[str, int] = defaultdict(int)
        self.pods = 0
        self.by_priority: dict[int, Sum] = {}
        self.leaving: Counter[int] = Counter()

    def count(self, share: Share, pods: int) -> None:
        """`pods` is 1 or -1."""
        self.pods += pods
        before = self.by_priority.get(share.priority, _NOBODY)
        amounts = dict(before.amounts)
        for name, amount in share.amounts.items():
            self.used[name] += pods * amount
            amounts[name] = amounts.get(name, 0) + pods * amount
        self.by_priority[share.priority] = Sum(amounts, before.pods + pods)
        if not before.pods + pods:
            del self.by_priority[share.priority]
        if share.leaving:
            self.leaving[share.priority] += pods


_NOBODY = Sum({}, 0)


class Usage:
    """Sums per node, kept up to date pod by pod. `less` is called with a node that a pod uses no more."""

    def __init__(self, less: Callable[[str], None] = _unheard) -> None:
        self._less = less
        self._shares: dict[str, Share] = {}
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)
        self._priorities: Counter[int] = Counter()

    def share(self, uid: str) -> Share | None:
        """What the pod counts for."""
        return self._shares.get(uid)

    def node_of(self, uid: str) -> str | None:
        """The node that the pod counts for, or None."""
        share = self._shares.get(uid)
        return share.node if share else None

    def put(self, uid: str, share: Share) -> None:
        """The pod uses that; replaces what was counted for it."""
        known = self._shares.get(uid)
        self._remove(uid)
        self._shares[uid] = share
        self._nodes[share.node].count(share, 1)
        self._priorities[share.priority] += 1
        if known is not None and (known.node != share.node or _less(known.amounts, share.amounts)):
            self._less(known.node)

    def remove(self, uid: str) -> None:
        """The pod uses nothing any more. Idempotent."""
        before = self._remove(uid)
        if before is not None:
            self._less(before)

    def leave(self, uid: str) -> None:
        """The same for a bound pod that is terminal or gone. `less` is not called: its own change says so."""
        self._remove(uid)

    def _remove(self, uid: str) -> str | None:
        """The node that the pod used."""
        share = self._shares.pop(uid, None)
        if share is None:
            return None
        node = self._nodes[share.node]
        node.count(share, -1)
        if not node.pods:
            del self._nodes[share.node]
        self._priorities[share.priority] -= 1
        if not self._priorities[share.priority]:
            del self._priorities[share.priority]
        return share.node

    def used(self, node: str) -> Amounts:
        """Sums over the node's pods."""
        return self._nodes[node].used if node in self._nodes else {}

    def without(self, node: str, uids: Iterable[str], below: int | None = None) -> tuple[Amounts, int]:
        """Sums over the node's pods but for these, and for all of a priority below that; and how many are left."""
        left, pods = (dict(self.used(node)), self.pods(node)) if below is None else self._from(node, below)
        for uid in uids:
            share = self._shares.get(uid)
            if share is not None and share.node == node and (below is None or share.priority >= below):
                pods -= 1
                for name, amount in share.amounts.items():
                    left[name] -= amount
        return left, pods

    def _from(self, node: str, lowest: int) -> tuple[dict[str, int], int]:
        """Sums over the node's pods of that priority and higher, and how many they are."""
        left: Counter[str] = Counter()
        pods = 0
        for level, found in self.by_priority(node).items():
            if level >= lowest:
                left.update(found.amounts)
                pods += found.pods
        return left, pods

    def pods(self, node: str) -> int:
        """How many pods count for the node."""
        return self._nodes[node].pods if node in self._nodes else 0

    def by_priority(self, node: str) -> Mapping[int, Sum]:
        """Sums over the node's pods of each priority."""
        return self._nodes[node].by_priority if node in self._nodes else {}

    def are_leaving(self, node: str, below: int) -> bool:
        """Whether pods of a priority below that are being deleted there."""
        return node in self._nodes and any(
            pods and priority < below for priority, pods in self._nodes[node].leaving.items()
        )

    def any_below_on(self, node: str, priority: int) -> bool:
        """Whether pods of a lower priority are on the node."""
        return min(self.by_priority(node), default=priority) < priority

    def any_below(self, priority: int) -> bool:
        """Whether pods of a lower priority are on any node."""
        return min(self._priorities, default=priority) < priority
