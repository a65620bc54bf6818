"""The nodes that are eligible for a claim before its driver is asked, and why the others are not.

`SuitableNodes` are those for a claim without a pod: by the rule for such claims (`parley.sdk.immediate`), and only
where its driver's plugin runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain

from parley.api.builtin import NodeSelector
from parley.api.models import ResourceClass
from parley.api.selectors import matches
from parley.control.caches.cluster import ClusterCache
from parley.control.decision.demand import Reserving
from parley.control.room import Requester, room_shortage
from parley.control.state import State
from parley.negotiation.rounds import FIRST_CANDIDATES
from parley.negotiation.selection import rotated
from parley.negotiation.stranded import Obstacle
from parley.sdk.immediate import NodeRule


class EligibleNodes(ABC):
    """The eligible nodes of one pod or claim, to be iterated over by name. Iteration begins at a node that depends
    on `uid`; `misfits` collects, by node, why skipped nodes are not eligible."""

    def __init__(self, cluster: ClusterCache, uid: str) -> None:
        self._cluster = cluster
        self.uid = uid
        self.misfits: dict[str, str] = {}

    @property
    def priority(self) -> int | None:
        """The pod's priority; None for a claim without a pod, which comes after all pods."""
        return None

    @property
    def bound_to(self) -> str:
        """The node of a pod that has one already."""
        return ""

    @property
    def preferred(self) -> Sequence[str]:
        """The nodes to ask about first, if they are eligible."""
        return ()

    @property
    def equivalence_key(self) -> Hashable:
        """Equal for all pods and claims that have the same nodes to choose from."""
        return ()

    def __iter__(self) -> Iterator[str]:
        return (name for name in rotated(self._candidate_names(), self.uid) if self.fits(name))

    def beginning_with(self, first: Iterable[str]) -> Iterator[str]:
        """The eligible nodes: preferred ones, then `first`, then the others. `first` does not count if there are
        so few that all are asked about at once."""
        done: set[str] = set()
        names = self._candidate_names()
        for name in chain(self.preferred, first if len(names) > FIRST_CANDIDATES else ()):
            if name not in done and self._is_candidate(name):
                done.add(name)
                if self.fits(name):
                    yield name
        yield from (name for name in rotated(names, self.uid) if name not in done and self.fits(name))

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        """The eligible nodes that match each of the selectors, in the same order."""
        for name in self:
            node = self._cluster.node(name)
            if node is not None and all(matches(selector, node) for selector in selectors):
                yield name

    def fits(self, node: str) -> bool:
        """Whether the node is eligible; if not, notes why in `misfits`."""
        if reason := self.misfit(node):
            self.misfits[node] = reason
            return False
        return True

    def evicts(self, node: str) -> bool:  # noqa: ARG002 - pods are, for other pods
        """Whether other pods have to be evicted on the eligible node."""
        return False

    def _candidate_names(self) -> Sequence[str]:
        """The nodes to choose from, eligible or not."""
        return self._cluster.node_names()

    def _is_candidate(self, node: str) -> bool:
        """Whether the node is one to choose from."""
        return self._cluster.node(node) is not None

    @abstractmethod
    def misfit(self, node: str) -> str:
        """Why the node is not eligible; "" if it is."""

    def obstacle(self, node: str) -> Obstacle | None:  # noqa: ARG002 - that of a pod's nodes
        """The state of the node, or its absence, that keeps the pod away; None if none does, or without a pod."""
        return None

    @abstractmethod
    def room_shortage(self, node: str, new: Sequence[Reserving] = ()) -> str:
        """Why the node lacks room beside what is reserved there, and for `new` reservations; "" if it has room."""

    @abstractmethod
    def fresh_copy(self) -> "EligibleNodes":
        """The same nodes, with no `misfits` noted yet."""


class SuitableNodes(EligibleNodes):
    """The nodes that are eligible for a claim of the class and namespace without a pod."""

    def __init__(self, state: State, class_: ResourceClass, namespace: str, uid: str) -> None:
        super().__init__(state.cluster, uid)
        self._state = state
        self._class = class_
        self._requester = Requester(namespace)
        self._rule = NodeRule(class_)

    def fresh_copy(self) -> "SuitableNodes":
        return SuitableNodes(self._state, self._class, self._requester.namespace, self.uid)

    def room_shortage(self, node: str, new: Sequence[Reserving] = ()) -> str:
        return room_shortage(self._state, node, self._requester, new)

    def misfit(self, node: str) -> str:
        found = self._cluster.node(node)
        if found is None:
            return "does not exist"
        return self._rule.misfit(found) or self._cluster.plugins.missing(self._class, node)
