"""The nodes that come into question for a claim before any pod names it.

Those that the class calls suitable, where its driver's plugin runs, and that Kubernetes sends ordinary pods to:
schedulable, without a taint that keeps pods away. How much room is left there for pods is not judged: the claim
may outlive those that take it now.
"""

from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

from parley.api.builtin import Node, NodeSelector
from parley.api.models import ResourceClass
from parley.api.selectors import selector_of
from parley.control.cluster import Cluster
from parley.negotiation.fit import matches

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


class SuitableNodes:
    """Iterates over the nodes in an order of the claim's own, and keeps why others do not come into question.

    `excluded` are nodes where the driver said that it will never do, with its words.
    """

    def __init__(self, cluster: Cluster, class_: ResourceClass, uid: str, excluded: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._class = class_
        self._selector = suitable_nodes(class_)
        self._uid = uid
        self._excluded = excluded
        self.misfits: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return (name for name in spread(self._cluster.node_names(), self._uid) if self.fits(name))

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        """The nodes in question that match each of the selectors, in the same order."""
        for name in self:
            node = self._cluster.node(name)
            if node is not None and all(matches(selector, node) for selector in selectors):
                yield name

    def fits(self, node: str) -> bool:
        """Whether the node comes into question; remembers why not."""
        if reason := self.misfit(node):
            self.misfits[node] = reason
            return False
        return True

    def anew(self) -> "SuitableNodes":
        """As if no node had been looked at yet."""
        return SuitableNodes(self._cluster, self._class, self._uid, self._excluded)

    def misfit(self, node: str) -> str:
        """Why the node does not come into question; "" if it does."""
        return self._excluded.get(node) or self._misfit(self._cluster.node(node))

    def _misfit(self, node: Node | None) -> str:
        if node is None:
            return "does not exist"
        if self._selector is not None and not matches(self._selector, node):
            return f"is not among the suitableNodes of class {self._class.metadata.name}"
        if node.spec.unschedulable:
            return "is cordoned"
        taint = next((taint for taint in node.spec.taints if taint.effect in _KEEPS_PODS_AWAY), None)
        if taint is not None:
            return f"has taint {taint.key}:{taint.effect}"
        return self._cluster.plugins.missing(self._class, node.metadata.name)


def spread(names: Sequence[str], uid: str) -> Iterator[str]:
    """All names, beginning at a place of the object's own, so that not everybody asks about the same first."""
    start = crc32(uid.encode()) % len(names) if names else 0
    for position in range(len(names)):
        yield names[(start + position) % len(names)]


def suitable_nodes(class_: ResourceClass) -> NodeSelector | None:
    """The class's `suitableNodes`; None if every node is."""
    if class_.suitable_nodes is None:
        return None
    return selector_of(class_.suitable_nodes)
