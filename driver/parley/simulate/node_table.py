"""The simulated scheduler's table of nodes, with sums and indexes that are updated with each pod.

They keep a scheduling cycle from visiting every pod of every node: the requests of a node's pods, the pods with
anti-affinity, and the nodes in the order of their numbers of pods.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from parley.api.builtin import Node
from parley.control.objects.pod import priority
from parley.negotiation.requests import Amounts, amounts, requested
from parley.simulate.anti_affinity import Pod, has_anti_affinity


@dataclass(slots=True)
class NodeInfo:
    """A node, and the pods counted on it; to be changed with `add` and `remove`."""

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
        """Count the pod on the node."""
        self.pods.append(pod)
        self.used.update(requested(pod))

    def remove(self, pod: Pod) -> None:
        """Remove a pod that was added; it must have the same requests."""
        self.pods = [other for other in self.pods if other.metadata.uid != pod.metadata.uid]
        self.used.subtract(requested(pod))


class NodeTable(dict[str, NodeInfo]):
    """The nodes by name. Pods on nodes that do not exist yet are counted once these are added."""

    def __init__(self, nodes: Mapping[str, NodeInfo] = {}) -> None:
        super().__init__(nodes)
        self._placed: dict[str, tuple[str, Pod]] = {}
        self._on_missing_nodes: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._with_anti_affinity: dict[tuple[str, str], Pod] = {}
        self._nominated: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._nominated_on: dict[str, str] = {}
        self._order: list[tuple[int, str]] = []
        for name, node_info in nodes.items():
            self._rank(name)
            for pod in node_info.pods:
                self._remember(pod, name)

    def put(self, node: Node) -> None:
        """Add or update a node."""
        name = node.metadata.name
        known = self.get(name)
        self[name] = NodeInfo(node, known.pods if known else list(self._on_missing_nodes.pop(name, {}).values()))
        self._rank(name)

    def drop(self, name: str) -> None:
        """Remove a node; its pods are kept, to be counted if the node is added again."""
        node_info = self.pop(name, None)
        for pod in node_info.pods if node_info else ():
            self._on_missing_nodes[name][pod.metadata.uid] = pod

    def place(self, pod: Pod, name: str) -> None:
        """Count the pod on this node, and on no other."""
        known = self._placed.get(pod.metadata.uid)
        if known is not None and known[0] == name and _same(known[1], pod):
            return
        self.remove(pod.metadata.uid)
        self._remember(pod, name)
        if name in self:
            self[name].add(pod)
            self._rank(name)
        else:
            self._on_missing_nodes[name][pod.metadata.uid] = pod

    def _remember(self, pod: Pod, name: str) -> None:
        self._placed[pod.metadata.uid] = (name, pod)
        if has_anti_affinity(pod):
            self._with_anti_affinity[name, pod.metadata.uid] = pod

    def remove(self, uid: str) -> None:
        """Count the pod on no node."""
        name, pod = self._placed.pop(uid, ("", None))
        self._with_anti_affinity.pop((name, uid), None)
        if pod is not None and name in self:
            self[name].remove(pod)
            self._rank(name)
        elif pod is not None:
            self._on_missing_nodes[name].pop(uid, None)

    def nominate(self, pod: Pod, name: str) -> None:
        """Record the waiting pod's nominated node; "" removes the nomination."""
        known = self._nominated_on.pop(pod.metadata.uid, "")
        self._nominated[known].pop(pod.metadata.uid, None)
        if name:
            self._nominated_on[pod.metadata.uid] = name
            self._nominated[name][pod.metadata.uid] = pod

    def for_pod(self, name: str, pod: Pod) -> NodeInfo:
        """The node as it is evaluated for the pod: with pods nominated there, gated ones, too, whose priority is
        not lower (`addGENominatedPods`), unless they are assumed and counted already."""
        node_info = self[name]
        nominated = [one for uid, one in self._nominated.get(name, {}).items() if uid not in self._placed]
        counting = [
            one for one in nominated if priority(one) >= priority(pod) and one.metadata.uid != pod.metadata.uid
        ]
        return NodeInfo(node_info.node, [*node_info.pods, *counting]) if counting else node_info

    def nominated_below(self, name: str, level: int) -> list[Pod]:
        """The pods of lower priority that are nominated for the node and not being bound."""
        nominated = self._nominated.get(name, {}).items()
        return [one for uid, one in nominated if uid not in self._placed and priority(one) < level]

    def _rank(self, name: str) -> None:
        heapq.heappush(self._order, (len(self[name].pods), name))

    def fewest_first(self) -> Iterator[str]:
        """All nodes, sorted by their number of pods, then by name."""
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

    def possibly_conflicting(self, pod: Pod) -> Iterable[tuple[Node, Pod]]:
        """The pods, with their nodes, that may conflict with the pod by anti-affinity, of either of them."""
        if has_anti_affinity(pod):
            yield from ((node_info.node, other) for node_info in self.values() for other in node_info.pods)
        else:
            yield from (
                (self[name].node, other) for (name, _), other in self._with_anti_affinity.items() if name in self
            )


def _same(one: Pod, other: Pod) -> bool:
    """Whether the two states of a pod are equal in the fields that scheduling or preemption read."""
    return _counting(one) == _counting(other)


def _counting(pod: Pod) -> object:
    statuses = pod.status.container_statuses, pod.status.init_container_statuses
    return pod.spec, pod.metadata.labels, pod.metadata.deletion_timestamp, statuses
