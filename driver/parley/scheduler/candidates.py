"""The nodes that come into question for one pod, in an order that spreads pods over nodes.

`CandidateNodes` are Parley's own proposal, by a model of the scheduler's filters; of `ProposedNodes` a scheduler
has said that they pass the real ones.
"""

from collections.abc import Iterator, Sequence, Set

from parley.api.builtin import Node, NodeSelector, Pod
from parley.api.models import ResourceClass
from parley.control.cluster import Cluster
from parley.control.podclaims import PodClaim
from parley.control.suitable import spread, suitable_nodes
from parley.negotiation.fit import matches, misfit, needs_of


class CandidateNodes:
    """Iterates over the fitting nodes, starting at a place of the pod's own, and keeps why others do not fit.

    `only` limits the nodes to where the pod's other claims are; None means no limit.
    """

    def __init__(
        self, cluster: Cluster, pod: Pod, classes: Sequence[ResourceClass], only: Set[str] | None
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._needs = needs_of(pod)
        self._uid = pod.metadata.uid
        self._classes = classes
        self._suitable = [(c.metadata.name, selector) for c in classes if (selector := suitable_nodes(c))]
        self.only = only
        self.misfits: dict[str, str] = {}

    def anew(self) -> "CandidateNodes":
        """By the model, as if no node had been looked at yet."""
        return CandidateNodes(self._cluster, self._pod, self._classes, self.only)

    def __iter__(self) -> Iterator[str]:
        return (name for name in spread(self._names(), self._uid) if self.fits(name))

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        """The fitting nodes that match each of the selectors, in the same order."""
        for name in self:
            node = self._cluster.node(name)
            if node is not None and all(matches(selector, node) for selector in selectors):
                yield name

    def _names(self) -> Sequence[str]:
        if self._needs.node_name:
            return (self._needs.node_name,)
        return sorted(self.only) if self.only is not None else self._cluster.node_names()

    def fits(self, node: str) -> bool:
        """Whether the node comes into question; remembers why not."""
        if self._needs.node_name not in ("", node):
            return False
        if reason := self.misfit(node):
            self.misfits[node] = reason
            return False
        return True

    def misfit(self, name: str) -> str:
        """Why the node does not come into question; "" if it does."""
        if self._needs.node_name not in ("", name):
            return f"the pod is bound to node {self._needs.node_name}"
        node = self._cluster.node(name)
        if node is None:
            return "does not exist"
        if self.only is not None and name not in self.only:
            return "another claim of the pod is allocated elsewhere"
        return self._unsuitable(node) or self._filtered(node) or self._without_plugin(name)

    def _filtered(self, node: Node) -> str:
        name, usage = node.metadata.name, self._cluster.usage
        return misfit(self._needs, node, self._cluster.allocatable(name), usage.used(name), usage.pods(name))

    def _without_plugin(self, node: str) -> str:
        found = (self._cluster.plugins.missing(class_, node) for class_ in self._classes)
        return next(filter(None, found), "")

    def _unsuitable(self, node: Node) -> str:
        for class_name, selector in self._suitable:
            if not matches(selector, node):
                return f"is not among the suitableNodes of class {class_name}"
        return ""


class ProposedNodes(CandidateNodes):
    """Iterates over those of a scheduler's candidates that come into question, in the same way."""

    def __init__(
        self,
        cluster: Cluster,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        proposed: Sequence[str],
    ) -> None:
        super().__init__(cluster, pod, classes, only)
        self._proposed = proposed
        self._known = frozenset(proposed)

    def _names(self) -> Sequence[str]:
        if self.only is None:
            return self._proposed
        return [name for name in self._proposed if name in self.only]

    def _filtered(self, node: Node) -> str:
        return "" if node.metadata.name in self._known else "does not pass the scheduler's own filters"


def common_nodes(claims: Sequence[PodClaim]) -> frozenset[str] | None:
    """The nodes where everything that is allocated for the pod can be used; None if nothing limits them."""
    limits = [claim.holding.nodes for claim in claims if claim.holding is not None]
    sets = [frozenset(nodes) for nodes in limits if nodes is not None]
    return frozenset.intersection(*sets) if sets else None
