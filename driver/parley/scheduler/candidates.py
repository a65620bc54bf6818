"""The nodes that are eligible for one pod, in an order that spreads pods over nodes.

`CandidateNodes` are eligible by Parley's model of the scheduler's filters. `ProposedNodes` have passed a
scheduler's real filters. `PreemptibleNodes` would be eligible if the scheduler evicted pods of lower priority
there. `FittingFirst` combines the first and the last, for drivers that take long to answer.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import islice

from parley.api.builtin import Node, NodeSelector, Pod
from parley.api.models import ResourceClass
from parley.api.selectors import limited_to, matches, suitable_nodes
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import Reserving
from parley.control.decision.eligible import EligibleNodes
from parley.control.objects.pod import priority
from parley.control.room import AssumedChanges, Requester, room_shortage, taken_by_borrowers
from parley.control.state import State
from parley.negotiation.fit import misfit, needs_of, selected, unsuitable
from parley.negotiation.nowhere import in_common, no_common_node
from parley.negotiation.preemption import NODES_COMPARED, Eviction, eviction
from parley.negotiation.requests import Amounts
from parley.negotiation.stranded import Cause, Obstacle, obstacle_for


class CandidateNodes(EligibleNodes):
    """The nodes that are eligible for the pod by Parley's model of the scheduler's filters.

    `only` limits them to the nodes of the pod's other claims; None means no limit. `hide_other_namespaces`:
    reasons don't name claims of other namespaces.
    """

    def __init__(
        self,
        state: State,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        *,
        hide_other_namespaces: bool = True,
    ) -> None:
        super().__init__(state.cluster, pod.metadata.uid)
        self._state = state
        self._pod = pod
        needs = needs_of(pod)
        delegated = state.cluster.delegated.among(name for name, _ in needs.requests)
        self._needs = replace(needs, delegated=delegated) if delegated else needs
        self._hide_other_namespaces = hide_other_namespaces
        self.classes = classes
        self._suitable = [(c.metadata.name, selector) for c in classes if (selector := suitable_nodes(c))]
        self.only = only

    @cached_property
    def _requester(self) -> Requester:
        return Requester.of(
            self._state, self._pod, self._needs.requests, hide_other_namespaces=self._hide_other_namespaces
        )

    @cached_property
    def _affinity_nodes(self) -> Set[str] | None:
        """The nodes that the pod's affinity names, if only these can match. To check all others takes long in a
        large cluster, and a DaemonSet makes a pod for each node."""
        return limited_to(self._needs.affinity) if self._needs.affinity is not None else None

    @cached_property
    def _volumes(self) -> tuple[tuple[str, NodeSelector], ...]:
        """The node selectors of the pod's volumes. For a bound pod they have been taken into account already."""
        needs = self._needs
        return () if needs.node_name or needs.excess else self._cluster.volumes.selectors(self._pod)

    @property
    def priority(self) -> int | None:
        return priority(self._pod)

    @property
    def bound_to(self) -> str:
        return self._needs.node_name

    @property
    def preferred(self) -> Sequence[str]:
        nominated = self._pod.status.nominated_node_name
        return (nominated,) if nominated else ()

    @property
    def equivalence_key(self) -> Hashable:
        """The pod's requests and constraints, and its priority if it may preempt, even without victims now."""
        needs = self._needs
        return (
            None if self._pod.spec.preemption_policy == "Never" else self.priority,
            needs.requests,
            needs.node_selector,
            repr(needs.affinity),
            repr(needs.tolerations),
            needs.excess,
            needs.node_name,
            self.only,
            self._requester.classes,
            repr(self._volumes) if self._volumes else "",
        )

    def fresh_copy(self) -> "CandidateNodes":
        """The same nodes, evaluated afresh by the model."""
        return CandidateNodes(
            self._state, self._pod, self.classes, self.only, hide_other_namespaces=self._hide_other_namespaces
        )

    def _candidate_names(self) -> Sequence[str]:
        if self._needs.node_name:
            return (self._needs.node_name,)
        names = self.only if self.only is not None else self._affinity_nodes
        return sorted(names) if names is not None else self._cluster.node_names()

    def _is_candidate(self, node: str) -> bool:
        return self._needs.node_name in ("", node) and (self.only is None or node in self.only)

    def fits(self, node: str) -> bool:
        if self._needs.node_name not in ("", node):
            return False  # a driver proposed it; the pod's binding is no reason to report
        return super().fits(node)

    def misfit(self, node: str) -> str:
        return self._judged(node, self._filtered)

    def obstacle(self, node: str) -> Obstacle | None:
        if self._needs.node_name or self._needs.excess:
            return None
        usage, allocatable = self._cluster.usage, self._cluster.allocatable(node)
        found = self._cluster.node(node)
        if (
            plain := obstacle_for(self._needs, found, allocatable, usage.used(node), usage.pods(node))
        ) is not None:
            return self._because_of_borrowers(plain, node)
        full = self.room_shortage(node) if found is not None and selected(self._needs, found) else ""
        return Obstacle(Cause.FULL, full) if full else None

    def _because_of_borrowers(self, obstacle: Obstacle, node: str) -> Obstacle:
        borrowers = taken_by_borrowers(self._state, node, self._requester) if obstacle.cause is Cause.FULL else ""
        return replace(obstacle, text=f"{obstacle.text}: {borrowers}") if borrowers else obstacle

    def room_shortage(self, node: str, new: Sequence[Reserving] = ()) -> str:
        reserved = new or self._state.ledger.reserving(node)
        return room_shortage(self._state, node, self._requester, new) if reserved else ""

    def room_shortage_after(self, node: str, new: Sequence[Reserving], changes: AssumedChanges) -> str:
        """Why the node would lack room for the reservations after these changes; "" if it would not."""
        return room_shortage(self._state, node, self._requester, new, changes) if new else ""

    def misfit_with_usage(self, node: str, used: Amounts, pods: int) -> str:
        """Why the node would not be eligible if so many pods used that much of it; "" if it would be. Never
        eligible where room is reserved: what evicted users of it gave up would stay reserved."""
        if self._state.ledger.reserving(node):
            return "room is reserved there"
        allocatable = self._cluster.allocatable(node)
        return self._judged(node, lambda found: misfit(self._needs, found, allocatable, used, pods))

    def _judged(self, node: str, filtered: Callable[[Node], str]) -> str:
        if self._needs.node_name not in ("", node):
            return f"the pod is bound to node {self._needs.node_name}"
        found = self._cluster.node(node)
        if found is None:
            return "does not exist"
        if self.only is not None and node not in self.only:
            return "a claim of the pod is allocated elsewhere"
        return self._unsuitable(found) or self._lacks_volume(found) or filtered(found) or self._lacks_plugin(node)

    def _lacks_volume(self, node: Node) -> str:
        found = (name for name, selector in self._volumes if not matches(selector, node))
        name = next(found, "")
        return f"the volume of PersistentVolumeClaim {name} can't be used there" if name else ""

    def _filtered(self, node: Node) -> str:
        name, usage = node.metadata.name, self._cluster.usage
        plain = misfit(self._needs, node, self._cluster.allocatable(name), usage.used(name), usage.pods(name))
        return plain or self.room_shortage(name)

    def _lacks_plugin(self, node: str) -> str:
        found = (self._cluster.plugins.missing(class_, node) for class_ in self.classes)
        return next(filter(None, found), "")

    def _unsuitable(self, node: Node) -> str:
        found = (unsuitable(class_name, selector, node) for class_name, selector in self._suitable)
        return next(filter(None, found), "")


class ProposedNodes(CandidateNodes):
    """The eligible ones among the nodes that a scheduler proposed for the pod, which pass its own filters."""

    def __init__(
        self,
        state: State,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        proposed: Sequence[str],
    ) -> None:
        super().__init__(state, pod, classes, only)
        self._proposed = proposed
        self._known = frozenset(proposed)

    def _candidate_names(self) -> Sequence[str]:
        if self.only is None:
            return self._proposed
        return [name for name in self._proposed if name in self.only]

    def _is_candidate(self, node: str) -> bool:
        return node in self._known and super()._is_candidate(node)

    def _lacks_volume(self, node: Node) -> str:
        return super()._lacks_volume(node) if node.metadata.name not in self._known else ""

    def _filtered(self, node: Node) -> str:
        if node.metadata.name in self._known:
            return self.room_shortage(node.metadata.name)
        return super()._filtered(node) or "refused by the scheduler's own filters"


class PreemptibleNodes(CandidateNodes):
    """The nodes that would be eligible once the scheduler had evicted pods of lower priority there; first those
    with the least important and fewest victims. It leaves out nodes that are eligible as they are, and those where
    room is reserved: what evicted users of it gave up would stay reserved. `evicting_on` is the only node where
    pods may be evicted; "" is any."""

    def __init__(
        self,
        state: State,
        pod: Pod,
        classes: Sequence[ResourceClass],
        only: Set[str] | None,
        evicting_on: str = "",
    ) -> None:
        super().__init__(state, pod, classes, only)
        self._evicting_on = evicting_on
        self._evictions: dict[str, Eviction] = {}

    def __iter__(self) -> Iterator[str]:
        return self._fewest_evictions_first(super().__iter__())

    def beginning_with(self, first: Iterable[str]) -> Iterator[str]:
        return self._fewest_evictions_first(super().beginning_with(first))

    def _fewest_evictions_first(self, fitting: Iterator[str]) -> Iterator[str]:
        found = (node for node in fitting if node in self._evictions)
        return iter(sorted(islice(found, NODES_COMPARED), key=self._evictions.__getitem__))

    def evicts(self, node: str) -> bool:
        return node in self._evictions

    def fresh_copy(self) -> "PreemptibleNodes":
        return PreemptibleNodes(self._state, self._pod, self.classes, self.only, self._evicting_on)

    def _filtered(self, node: Node) -> str:
        reason = super()._filtered(node)
        name = node.metadata.name
        self._evictions.pop(name, None)
        if not reason or self._evicting_on not in ("", name) or self._state.ledger.reserving(name):
            return reason
        if misfit(self._needs, node, self._cluster.allocatable(name), {}, 0):
            return reason
        used = self._cluster.usage.by_priority(name)
        found = eviction(self._needs, priority(self._pod), self._cluster.allocatable(name), used)
        if found is None:
            return reason
        self._evictions[name] = found
        return ""


class FittingFirst(PreemptibleNodes):
    """The nodes that are eligible as they are, followed by the preemptible ones."""

    def _fewest_evictions_first(self, fitting: Iterator[str]) -> Iterator[str]:
        preemptible: list[str] = []
        for node in fitting:
            if node not in self._evictions:
                yield node
            elif len(preemptible) < NODES_COMPARED:
                preemptible.append(node)
        yield from sorted(preemptible, key=self._evictions.__getitem__)

    def fresh_copy(self) -> "FittingFirst":
        return FittingFirst(self._state, self._pod, self.classes, self.only, self._evicting_on)


def may_preempt(cluster: ClusterCache, pod: Pod) -> bool:
    """Whether the scheduler may evict pods for this one, there are any to evict, and it is not evicting
    already."""
    if pod.spec.node_name or pod.spec.preemption_policy == "Never" or not cluster.usage.any_below(priority(pod)):
        return False
    nominated = pod.status.nominated_node_name
    return not (nominated and cluster.usage.any_terminating(nominated, priority(pod)))


def have_no_common_node(claims: Sequence[PodClaim]) -> bool:
    """Whether no node can use everything that is allocated for the pod."""
    return bool(no_common_node({c.holding.path: c.holding.nodes for c in claims if c.holding is not None}))


def common_nodes(claims: Sequence[PodClaim]) -> Set[str] | None:
    """The nodes where everything that is allocated for the pod can be used; None if nothing limits them."""
    return in_common(claim.holding.nodes for claim in claims if claim.holding is not None)
