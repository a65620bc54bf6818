"""The nodes that are eligible for a claim before its driver is asked, and why the others are not.

Here are those for a claim that no pod names yet: by the rule for such claims (`parley.sdk.immediate`), and where
its driver's plugin runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence

from parley.api.builtin import NodeSelector
from parley.api.models import ResourceClass
from parley.api.selectors import matches
from parley.control.caches.cluster import ClusterCache
from parley.control.decision.demand import Reserving
from parley.control.room import Asker, lacking
from parley.control.state import State
from parley.negotiation.rounds import FIRST_CANDIDATES
from parley.negotiation.selection import spread
from parley.negotiation.stranded import Obstacle
from parley.sdk.immediate import NodeRule


class EligibleNodes(ABC):
    """The eligible nodes of one pod or claim, to be iterated over by name. Iteration begins at a node that
    depends on `uid`; `misfits` collects, by node, why those that were passed over are not eligible."""

    def __init__(self, cluster: ClusterCache, uid: str) -> None:
        self._cluster = cluster
        self.uid = uid
        self.misfits: dict[str, str] = {}

    @property
    def priority(self) -> int | None:
        """Of the pod that they are for; None without one, which comes after all pods."""
        return None

    @property
    def bound_to(self) -> str:
        """The node of a pod that has one already."""
        return ""

    @property
    def alike(self) -> Hashable:
        """Equal for all who want the same of the same drivers and have the same nodes to choose from."""
        return ()

    def __iter__(self) -> Iterator[str]:
        return (name for name in spread(self._names(), self.uid) if self.fits(name))

    def beginning_with(self, first: Iterable[str]) -> Iterator[str]:
        """The eligible nodes, these before the others. Where all are asked about at once, order is of no use."""
        looked_at: set[str] = set()
        names = self._names()
        if len(names) > FIRST_CANDIDATES:
            for name in first:
                if name not in looked_at and self._proposes(name):
                    looked_at.add(name)
                    if self.fits(name):
                        yield name
        yield from (name for name in spread(names, self.uid) if name not in looked_at and self.fits(name))

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

    def evicts(self, node: str) -> bool:  # noqa: ARG002 - pods are, for other pods
        """Whether others have to be evicted on the node, which is eligible."""
        return False

    def _names(self) -> Sequence[str]:
        """The nodes to look at."""
        return self._cluster.node_names()

    def _proposes(self, node: str) -> bool:
        """Whether the node is one to look at."""
        return self._cluster.node(node) is not None

    @abstractmethod
    def misfit(self, node: str) -> str:
        """Why the node is not eligible; "" if it is."""

    def obstacle(self, node: str) -> Obstacle | None:  # noqa: ARG002 - that of a pod's nodes
        """What about the node, which may be gone, keeps the pod away; None if nothing does, or there is no pod."""
        return None

    @abstractmethod
    def crowded(self, node: str, new: Sequence[Reserving] = ()) -> str:
        """Why the node does not have room beside what is reserved there, and for `new` reservations, or ""."""

    @abstractmethod
    def anew(self) -> "EligibleNodes":
        """The same, as if no node had been looked at yet."""


class SuitableNodes(EligibleNodes):
    """The nodes that are eligible for a claim of the class and namespace without a pod."""

    def __init__(self, state: State, class_: ResourceClass, namespace: str, uid: str) -> None:
        super().__init__(state.cluster, uid)
        self._state = state
        self._class = class_
        self._asker = Asker(namespace)
        self._rule = NodeRule(class_)

    def anew(self) -> "SuitableNodes":
        return SuitableNodes(self._state, self._class, self._asker.namespace, self.uid)

    def crowded(self, node: str, new: Sequence[Reserving] = ()) -> str:
        return lacking(self._state, node, self._asker, new)

    def misfit(self, node: str) -> str:
        found = self._cluster.node(node)
        if found is None:
            return "does not exist"
        return self._rule.misfit(found) or self._cluster.plugins.missing(self._class, node)
