"""How much of each node is used: by bound pods, and by pods with a selected node that are not seen bound yet."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from parley.api.builtin import Pod
from parley.control.objects.pod import is_done, priority
from parley.kube.cache import Key
from parley.negotiation.preemption import Sum
from parley.negotiation.requests import Amounts, requested


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a node that one pod uses. `terminating`: the pod is being deleted."""

    node: str
    amounts: Amounts
    priority: int = 0
    terminating: bool = False


def _ignore(_: str) -> None:
    """Nothing waits, and nothing else is summed up."""


def _request_fields(pod: Pod) -> tuple[object, ...]:
    """The fields that decide how much the pod requests."""
    return pod.spec.containers, pod.spec.init_containers, pod.spec.resources


def _is_less(before: Amounts, now: Amounts) -> bool:
    """Whether any amount decreased."""
    return any(now.get(name, 0) < amount for name, amount in before.items())


def _add(sums: dict[str, int], amounts: Amounts, times: int) -> None:
    """Add in place. Zero sums are removed: pods may invent names, which must not stay when they are gone."""
    for name, amount in amounts.items():
        if total := sums.get(name, 0) + times * amount:
            sums[name] = total
        else:
            sums.pop(name, None)


class _Node:
    """Sums over the pods of one node, changed in place: a pod's cost grows only with its own resource names."""

    __slots__ = ("_amounts", "by_priority", "pods", "terminating", "used")

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.pods = 0
        self._amounts: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self.by_priority: dict[int, Sum] = {}
        self.terminating: Counter[int] = Counter()

    def count(self, share: Share, pods: int) -> None:
        """Add (`pods` is 1) or remove (-1) a pod's share."""
        self.pods += pods
        _add(self.used, share.amounts, pods)
        amounts = self._amounts[share.priority]
        _add(amounts, share.amounts, pods)
        now = self.by_priority.get(share.priority, _NOBODY).pods + pods
        self.by_priority[share.priority] = Sum(amounts, now)
        if not now:
            del self.by_priority[share.priority], self._amounts[share.priority]
        if share.terminating:
            self.terminating[share.priority] += pods


_NOBODY = Sum({}, 0)


class Usage:
    """Sums per node, kept up to date pod by pod. `decreased` is called with a node of which a pod uses less, and
    before that `counted` with the UID of a pod that counts for a node from now on, or does not any more.

    A pod may request thousands of resources that no node has. So nothing here iterates over all resources that a
    node's pods request together. The returned sums change with the pods: callers copy what they keep.
    """

    def __init__(
        self, decreased: Callable[[str], None] = _ignore, counted: Callable[[str], None] = _ignore
    ) -> None:
        self._decreased = decreased
        self._counted = counted
        self._shares: dict[str, Share] = {}
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)
        self._priorities: Counter[int] = Counter()
        self._assumed: defaultdict[str, dict[str, Key]] = defaultdict(dict)
        """Keys of the assumed pods, which are not seen bound yet, by node and UID."""

    def share(self, uid: str) -> Share | None:
        """The part of a node that the pod counts for; None if it counts for none."""
        return self._shares.get(uid)

    def node_of(self, uid: str) -> str | None:
        """The node that the pod counts for, or None."""
        share = self._shares.get(uid)
        return share.node if share else None

    def assume(self, pod: Pod, node: str) -> None:
        """Count the pod for the node before its binding is seen."""
        self.put(pod.metadata.uid, Share(node, requested(pod), priority(pod)))
        self._assumed[node][pod.metadata.uid] = (pod.metadata.namespace, pod.metadata.name)

    def assumed(self, node: str) -> frozenset[Key]:
        """The pods that count for the node before their bindings are seen."""
        return frozenset(self._assumed[node].values()) if node in self._assumed else frozenset()

    def any_assumed(self, node: str, *, but: str) -> bool:
        """Whether another pod than the one with that UID counts for the node before its binding is seen."""
        return any(uid != but for uid in self._assumed.get(node, ()))

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Handle the event of a pod; None does not exist. A bound pod counts for its node until it ends."""
        stop_counting = self.remove_terminal if old is not None and old.spec.node_name else self.remove
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            stop_counting(old.metadata.uid)
        if new is not None and is_done(new):
            stop_counting(new.metadata.uid)
        elif new is not None and new.spec.node_name:
            self._count(old, new)

    def _count(self, old: Pod | None, pod: Pod) -> None:
        """Count a bound pod. Its requests are summed up again only when they changed."""
        node, terminating = pod.spec.node_name, bool(pod.metadata.deletion_timestamp)
        known = self._shares.get(pod.metadata.uid)
        if known is not None:
            self._end_assumed(pod.metadata.uid, known.node)
        resized = old is not None and _request_fields(old) != _request_fields(pod)
        if known is None or resized or (known.node, known.terminating) != (node, terminating):
            self.put(pod.metadata.uid, Share(node, requested(pod), priority(pod), terminating))

    def put(self, uid: str, share: Share) -> None:
        """Count the pod with this share, in place of an earlier one."""
        known = self._shares.get(uid)
        self._remove(uid)
        self._shares[uid] = share
        self._nodes[share.node].count(share, 1)
        self._priorities[share.priority] += 1
        self._counted(uid)
        if known is not None and (known.node != share.node or _is_less(known.amounts, share.amounts)):
            self._decreased(known.node)

    def remove(self, uid: str) -> None:
        """Stop counting the pod. Idempotent."""
        before = self._remove(uid)
        if before is not None:
            self._decreased(before)

    def remove_terminal(self, uid: str) -> None:
        """Stop counting a bound pod that is terminal. `decreased` is not called: the pod's own event says so."""
        self._remove(uid)

    def _remove(self, uid: str) -> str | None:
        """Stop counting the pod. Returns the node that it counted for."""
        share = self._shares.pop(uid, None)
        if share is None:
            return None
        self._end_assumed(uid, share.node)
        node = self._nodes[share.node]
        node.count(share, -1)
        if not node.pods:
            del self._nodes[share.node]
        self._priorities[share.priority] -= 1
        if not self._priorities[share.priority]:
            del self._priorities[share.priority]
        self._counted(uid)
        return share.node

    def _end_assumed(self, uid: str, node: str) -> None:
        if uid in (assumed := self._assumed.get(node, {})):
            del assumed[uid]
            if not assumed:
                del self._assumed[node]

    def used(self, node: str) -> Amounts:
        """The sums over the node's pods."""
        return self._nodes[node].used if node in self._nodes else {}

    def without(
        self, node: str, uids: Iterable[str], names: Iterable[str], below: int | None = None
    ) -> tuple[Amounts, int]:
        """The use of the named resources by the node's pods, and their number, without the pods with these UIDs
        and those with a priority below `below`."""
        sums = [Sum(self.used(node), self.pods(node))] if below is None else self._at_least(node, below)
        left = {name: sum(one.amounts.get(name, 0) for one in sums) for name in names}
        pods = sum(one.pods for one in sums)
        for uid in uids:
            share = self._shares.get(uid)
            if share is not None and share.node == node and (below is None or share.priority >= below):
                pods -= 1
                for name in left:
                    left[name] -= share.amounts.get(name, 0)
        return left, pods

    def _at_least(self, node: str, lowest: int) -> list[Sum]:
        """Sums over the node's pods of that priority and of each higher one."""
        return [found for level, found in self.by_priority(node).items() if level >= lowest]

    def pods(self, node: str) -> int:
        """The number of pods that count for the node."""
        return self._nodes[node].pods if node in self._nodes else 0

    def by_priority(self, node: str) -> Mapping[int, Sum]:
        """Sums over the node's pods of each priority."""
        return self._nodes[node].by_priority if node in self._nodes else {}

    def any_terminating(self, node: str, below: int) -> bool:
        """Whether pods with a priority below `below` are being deleted on the node."""
        return node in self._nodes and any(
            pods and priority < below for priority, pods in self._nodes[node].terminating.items()
        )

    def any_below_on(self, node: str, priority: int) -> bool:
        """Whether pods of a lower priority are on the node."""
        return min(self.by_priority(node), default=priority) < priority

    def any_below(self, priority: int) -> bool:
        """Whether pods of a lower priority are on any node."""
        return min(self._priorities, default=priority) < priority
