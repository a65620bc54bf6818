"""The nodes as the simulated scheduler sees them, with sums kept up to date pod by pod.

So that one placement does not cost a look at every pod of every node: what a node's pods request, which pods keep
others apart from themselves, and the nodes with the fewest pods are at hand.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from parley.api.builtin import Node
from parley.control.objects.pod import priority
from parley.negotiation.requests import Amounts, amounts, requested
from parley.simulate.anti_affinity import Pod, has_rules


@dataclass(slots=True)
class Occupied:
    """A node, and the pods that count for it; change these with `add` and `remove`."""

    node: Node
    pods: list[Pod] = field(default_factory=list)
    allocatable: Amounts = field(init=False)
    used: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.allocatable = amounts(self.node.status.allocatable)
        self.used = Counter()
        for pod in self.pods:
            self.used.update(requested(pod))

    def add(self, pod: Pod) -> None:
        """The pod counts for the node."""
        self.pods.append(pod)
        self.used.update(requested(pod))

    def remove(self, pod: Pod) -> None:
        """The pod, as it was added, does not count any more."""
        self.pods = [other for other in self.pods if other.metadata.uid != pod.metadata.uid]
        self.used.subtract(requested(pod))


class NodeTable(dict[str, Occupied]):
    """By name. Pods on nodes that are not there yet count as soon as these are."""

    def __init__(self, nodes: Mapping[str, Occupied] = {}) -> None:
        super().__init__(nodes)
        self._place: dict[str, tuple[str, Pod]] = {}
        self._elsewhere: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._ruled: dict[tuple[str, str], Pod] = {}
        self._nominated: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._nominated_on: dict[str, str] = {}
        self._order: list[tuple[int, str]] = []
        for name, occupied in nodes.items():
            self._rank(name)
            for pod in occupied.pods:
                self._remember(pod, name)

    def put(self, node: Node) -> None:
        """The node is there, or has changed."""
        name = node.metadata.name
        known = self.get(name)
        self[name] = Occupied(node, known.pods if known else list(self._elsewhere.pop(name, {}).values()))
        self._rank(name)

    def drop(self, name: str) -> None:
        """The node is gone; its pods are not."""
        occupied = self.pop(name, None)
        for pod in occupied.pods if occupied else ():
            self._elsewhere[name][pod.metadata.uid] = pod

    def place(self, pod: Pod, name: str) -> None:
        """The pod counts for the node, and for no other."""
        known = self._place.get(pod.metadata.uid)
        if known is not None and known[0] == name and _same(known[1], pod):
            return
        self.remove(pod.metadata.uid)
        self._remember(pod, name)
        if name in self:
            self[name].add(pod)
            self._rank(name)
        else:
            self._elsewhere[name][pod.metadata.uid] = pod

    def _remember(self, pod: Pod, name: str) -> None:
        self._place[pod.metadata.uid] = (name, pod)
        if has_rules(pod):
            self._ruled[name, pod.metadata.uid] = pod

    def remove(self, uid: str) -> None:
        """The pod counts for no node."""
        name, pod = self._place.pop(uid, ("", None))
        self._ruled.pop((name, uid), None)
        if pod is not None and name in self:
            self[name].remove(pod)
            self._rank(name)
        elif pod is not None:
            self._elsewhere[name].pop(uid, None)

    def nominate(self, pod: Pod, name: str) -> None:
        """The pod waits, and is nominated for the node; "" for none any more."""
        known = self._nominated_on.pop(pod.metadata.uid, "")
        self._nominated[known].pop(pod.metadata.uid, None)
        if name:
            self._nominated_on[pod.metadata.uid] = name
            self._nominated[name][pod.metadata.uid] = pod

    def judged(self, name: str, pod: Pod) -> Occupied:
        """The node as it is judged for the pod: pods that are nominated there count, gated ones, too, unless its
        priority is higher (`addGENominatedPods`), or they count already because they are being bound."""
        occupied = self[name]
        nominated = [one for uid, one in self._nominated.get(name, {}).items() if uid not in self._place]
        counting = [
            one for one in nominated if priority(one) >= priority(pod) and one.metadata.uid != pod.metadata.uid
        ]
        return Occupied(occupied.node, [*occupied.pods, *counting]) if counting else occupied

    def nominated_below(self, name: str, level: int) -> list[Pod]:
        """The pods of lower priority that are nominated for the node and not being bound."""
        nominated = self._nominated.get(name, {}).items()
        return [one for uid, one in nominated if uid not in self._place and priority(one) < level]

    def _rank(self, name: str) -> None:
        heapq.heappush(self._order, (len(self[name].pods), name))

    def fewest_first(self) -> Iterator[str]:
        """All nodes, those with the fewest pods first, by name among equals."""
        seen: set[str] = set()
        taken: list[tuple[int, str]] = []
        try:
            while self._order:
                count, name = heapq.heappop(self._order)
                if name in self and name not in seen and count == len(self[name].pods):
                    seen.add(name)
                    taken.append((count, name))
                    yield name
        finally:
            for entry in taken:
                heapq.heappush(self._order, entry)

    def may_mind(self, pod: Pod) -> Iterable[tuple[Node, Pod]]:
        """The pods, with their nodes, that may have to be kept apart from the pod."""
        if has_rules(pod):
            yield from ((occupied.node, other) for occupied in self.values() for other in occupied.pods)
        else:
            yield from ((self[name].node, other) for (name, _), other in self._ruled.items() if name in self)


def _same(one: Pod, other: Pod) -> bool:
    """Whether they are alike in all that counts for a node, or for who might go from it."""
    return _counting(one) == _counting(other)


def _counting(pod: Pod) -> object:
    statuses = pod.status.container_statuses, pod.status.init_container_statuses
    return pod.spec, pod.metadata.labels, pod.metadata.deletion_timestamp, statuses
