"""The nodes that are eligible for a claim before its driver is asked, and why the others are not.

Here are those for a claim that no pod names yet: what the class calls suitable, where its driver's plugin runs,
and that Kubernetes sends ordinary pods to (schedulable, without a taint that keeps pods away). How much room is
left there for pods is not judged: the claim may outlive those that take it now.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from zlib import crc32

from parley.api.builtin import Node, NodeSelector
from parley.api.models import ResourceClass
from parley.api.selectors import selector_of
from parley.control.caches.cluster import Cluster
from parley.negotiation.fit import matches

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


class EligibleNodes(ABC):
    """Iterates over the eligible nodes, beginning at a place that depends on `uid`; `misfits` collects, by node,
    why others are not eligible."""

    def __init__(self, cluster: Cluster, uid: str) -> None:
        self._cluster = cluster
        self.uid = uid
        self.misfits: dict[str, str] = {}

    @property
    def alike(self) -> Hashable:
        """Equal for all who want the same of the same drivers and have the same nodes to choose from."""
        return ()

    def __iter__(self) -> Iterator[str]:
        return (name for name in spread(self._names(), self.uid) if self.fits(name))

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        """The eligible nodes that match each of the selectors, in the same order."""
        for name in self:
            node = self._cluster.node(name)
            if node is not None and all(matches(selector, node) for selector in selectors):
                yield name

    def fits(self, node: str) -> bool:
        """Whether the node is eligible; keeps why not."""
        if reason := self.misfit(node):
            self.misfits[node] = reason
            return False
        return True

    def _names(self) -> Sequence[str]:
        """The nodes to look at."""
        return self._cluster.node_names()

    @abstractmethod
    def misfit(self, node: str) -> str:
        """Why the node is not eligible; "" if it is."""

    @abstractmethod
    def anew(self) -> "EligibleNodes":
        """The same, as if no node had been looked at yet."""


class SuitableNodes(EligibleNodes):
    """The nodes that are eligible for a claim of the class without a pod."""

    def __init__(self, cluster: Cluster, class_: ResourceClass, uid: str) -> None:
        super().__init__(cluster, uid)
        self._class = class_
        self._selector = suitable_nodes(class_)

    def anew(self) -> "SuitableNodes":
        return SuitableNodes(self._cluster, self._class, self.uid)

    def misfit(self, node: str) -> str:
        return self._misfit(self._cluster.node(node))

    def _misfit(self, node: Node | None) -> str:
        if node is None:
            return "does not exist"
        if self._selector is not None and not matches(self._selector, node):
            return f"not among the suitableNodes of class {self._class.metadata.name}"
        if node.spec.unschedulable:
            return "cordoned"
        taint = next((taint for taint in node.spec.taints if taint.effect in _KEEPS_PODS_AWAY), None)
        if taint is not None:
            return f"taint {taint.key}:{taint.effect}"
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
