"""Chooses victims: the pods of lower priority whose eviction lets drivers allocate for a pod. A decision on the
state, for the controller and `explain`.

It is made for a pod for which no node is viable. Drivers are asked about a node "as if these claims were free";
those that can't answer that are asked as usual. Victims are pods of lower priority that hold exclusive generated
claims on one node, and nothing of a class without `preemption: LowerPriority`. Pods that are terminating anyway
cost nothing. If ordinary pods of lower priority also use what the pod needs, such as CPU, the pod's scheduler can
evict these once the claims are allocated there.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from parley.api.builtin import Pod
from parley.control.caches.indexes import named_claims
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import Evictable
from parley.control.decision.demand import Demand
from parley.control.decision.kept import is_enough, other_nominations
from parley.control.holding import Holding
from parley.control.nominations import Nomination
from parley.control.objects.class_request import class_request
from parley.control.objects.mirror import is_mirror
from parley.control.objects.pod import is_terminal, priority, reference
from parley.control.room import AssumedChanges
from parley.control.state import State
from parley.negotiation.answers import viable_for_all
from parley.negotiation.victims import Choice, Holder, choose
from parley.scheduler.candidates import CandidateNodes, common_nodes
from parley.sdk.checks import DriverFault


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A pod for which no node is viable. Pods may be evicted for claims of these `drivers` (see
    `drivers_allowing_preemption`); `scheduler_evicts`: its scheduler may evict ordinary pods of lower priority for
    it."""

    pod: Pod
    claims: Sequence[PodClaim]
    demand: Demand
    drivers: Collection[str]
    scheduler_evicts: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The pods to evict from a node: `victims`. `terminating` are the UIDs of those that are terminating anyway.

    `freed` are the UIDs of the claims that all of them hold there, by driver. `scheduler_evicts`: the pod's
    scheduler has to evict ordinary pods there afterwards.
    """

    node: str
    victims: tuple[Pod, ...]
    terminating: frozenset[str]
    freed: Mapping[str, frozenset[str]]
    scheduler_evicts: bool = False


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What a plan must not rely on: the `nodes`, the eviction of pods with the UIDs `spared`, and
    terminating pods on the nodes `stuck`, where these have taken too long to leave."""

    nodes: Collection[str] = ()
    spared: Collection[str] = ()
    stuck: Collection[str] = ()


@dataclass(slots=True)
class _PotentialVictim:
    """A pod that holds claims on a node: `held` are their UIDs by driver. `pod` is None if it is terminating."""

    pod: Pod | None
    held: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class PreemptionPotential(NamedTuple):
    """A node that would be viable if all pods left it that may be evicted; the smallest is considered first.
    `needs_scheduler`: the scheduler would also have to evict ordinary pods. The rest is `ClaimVictims._rank`."""

    needs_scheduler: bool
    not_nominated: bool
    none_terminating: bool
    lowest: int


def drivers_allowing_preemption(
    state: State, pod: Pod, demand: Demand, claims: Sequence[PodClaim]
) -> frozenset[str]:
    """The drivers for whose claims pods may be evicted for this one: the classes of its pending claims allow it,
    and the drivers can tell what would be viable then. Empty for a pod that preempts none."""
    if pod.spec.node_name or pod.spec.preemption_policy == "Never":
        return frozenset()
    nominated = state.nominations.of(pod.metadata.uid) is not None
    if not nominated and not state.cluster.usage.any_below(priority(pod)):
        return frozenset()
    return _drivers_allowing_preemption(state, demand, claims)


def _drivers_allowing_preemption(state: State, demand: Demand, claims: Sequence[PodClaim]) -> frozenset[str]:
    spared = {
        claim.class_.driver_name
        for claim in claims
        if claim.class_ is not None and not _allows_evictions(state, claim.class_name)
    }
    return frozenset(
        name for name in demand.requests if name not in spared and state.drivers[name].supports_preemption
    )


def _allows_evictions(state: State, class_name: str) -> bool:
    """Whether the class says so at present; one that is gone, or not known, does not."""
    class_ = state.cluster.class_(class_name)
    return class_ is not None and class_.preemption == "LowerPriority"


def evictable(state: State, preemptor: Preemptor, excluded: Collection[str]) -> Evictable:
    """A function that tells, whenever it is called, whether pods may be evicted on a node for this one; there may
    be none yet. Cheaper than reconciling the pod again with all nodes."""
    pod, demand, claims = preemptor.pod, preemptor.demand, preemptor.claims
    if pod.spec.node_name or pod.spec.preemption_policy == "Never":
        return lambda _: False
    drivers = _drivers_allowing_preemption(state, demand, claims)
    if not drivers:
        return lambda _: False
    with_drivers = replace(preemptor, drivers=drivers, claims=tuple(claims))

    def may_help(node: str) -> bool:
        try:
            return ClaimVictims(state, with_drivers, Exclusions(excluded)).potential(node) is not None
        except DriverFault:
            return True

    return may_help


class ClaimVictims:
    """The search for one pod's victims; `exclusions` are what its plan must not rely on. `among` are the nodes to
    consider; None means all."""

    def __init__(
        self,
        state: State,
        preemptor: Preemptor,
        exclusions: Exclusions | None = None,
        among: Iterable[str] | None = None,
    ) -> None:
        pod, claims = preemptor.pod, preemptor.claims
        classes = [claim.class_ for claim in claims if claim.class_]
        self._state = state
        self._pod = pod
        self._demand = preemptor.demand
        self._drivers = preemptor.drivers
        self._scheduler_evicts = preemptor.scheduler_evicts
        self._nodes = CandidateNodes(state, pod, classes, common_nodes(claims))
        self._exclusions = exclusions or Exclusions()
        self._among = among
        self._known: dict[str, dict[str, _PotentialVictim]] | None = None
        self._viable: dict[tuple[str, str], bool] = {}

    @property
    def search_key(self) -> Hashable:
        """A key, equal for searches that have the same result as long as nothing changes but the spared pods."""
        excluded, stuck = frozenset(self._exclusions.nodes), frozenset(self._exclusions.stuck)
        return (
            self._demand.equivalence_key,
            self._nodes.equivalence_key,
            frozenset(self._drivers),
            self._scheduler_evicts,
            excluded,
            stuck,
            bool(self._exclusions.spared),
        )

    def potential(self, node: str) -> PreemptionPotential | None:
        """How evictions on the node rank; None if it would not be viable whatever is evicted."""
        self._known = {node: self._potential_victims_on(node)}
        if not self._known[node]:
            return None
        everybody = self._holders(node)
        below = priority(self._pod) if self._scheduler_evicts else None
        if not self._suffices(node, everybody, below):
            return None
        return PreemptionPotential(below is not None and not self._suffices(node, everybody), *self._rank(node))

    def still_helps(self, plan: Plan) -> bool:
        """Whether the plan's node would be viable if all pods left it that may be evicted, and still is not if no
        others leave than those that are terminating by now; and whether all of its victims may be evicted."""
        below = priority(self._pod) if plan.scheduler_evicts else None
        if self.potential(plan.node) is None or self._suffices(plan.node, (), below):
            return False
        return {one.metadata.uid for one in plan.victims} <= {one.uid for one in self._holders(plan.node)}

    def plan(self) -> Plan | None:
        """The plan that does least harm; None if none helps. A node that pods have left for this one comes first,
        then nodes where its scheduler would not have to evict any."""
        holders = {node: self._holders(node) for node in self._order()}
        with_scheduler = partial(self._suffices, below=priority(self._pod))
        if self._scheduler_evicts and (own := self._nominated_node()) in holders and with_scheduler(own, ()):
            return self._planned(Choice(own, ()), scheduler_evicts=not self._suffices(own, ()))
        if (found := choose(holders, self._suffices)) is not None:
            return self._planned(found)
        if self._scheduler_evicts and (found := choose(holders, with_scheduler)) is not None:
            return self._planned(found, scheduler_evicts=True)
        return None

    def _nominated_node(self) -> str:
        """The node that the pod is nominated for, or ""."""
        nomination = self._state.nominations.of(self._pod.metadata.uid)
        return nomination.node if nomination is not None else ""

    def _order(self) -> list[str]:
        """The nodes in the order of consideration: the one that the pod is nominated for, then those with a
        terminating pod, then those with the least important pods."""
        return sorted(sorted(self._potential_victims), key=self._rank)

    def _rank(self, node: str) -> tuple[bool, bool, int]:
        potential_victims = self._potential_victims[node].values()
        priorities = [priority(one.pod) for one in potential_victims if one.pod is not None]
        return (
            node != self._nominated_node(),
            all(one.pod is not None for one in potential_victims),
            min(priorities, default=0),
        )

    @property
    def _potential_victims(self) -> Mapping[str, Mapping[str, _PotentialVictim]]:
        """The pods on each node that are terminating or may be evicted, by UID."""
        if self._known is None:
            nodes = self._among if self._among is not None else self._state.ledger.nodes()
            self._known = {node: found for node in nodes if (found := self._potential_victims_on(node))}
        return self._known

    def _potential_victims_on(self, node: str) -> dict[str, _PotentialVictim]:
        found: dict[str, _PotentialVictim] = {}
        for holding in self._preemptible_holdings(node):
            uid, pod = self._holder(holding)
            if pod is None:
                counts = node not in self._exclusions.stuck
            else:
                counts = uid not in self._exclusions.spared and self._may_be_evicted(pod)
            if counts:
                found.setdefault(uid, _PotentialVictim(pod)).held[holding.driver].add(holding.uid)
        return found

    def _preemptible_holdings(self, node: str) -> Iterable[Holding]:
        """The holdings on the node that may be taken for the pod; none if it would not fit on the empty node."""
        if node in self._exclusions.nodes or self._nodes.misfit_with_usage(node, {}, 0):
            return ()
        held = self._state.ledger.on(node)
        return (one for one in held if one.driver in self._drivers and _is_exclusive(one))

    def _holder(self, holding: Holding) -> tuple[str, Pod | None]:
        """The UID of the pod that has the holding, and the pod; None if it is terminating, or gone and its node
        has yet to confirm that."""
        user = next(iter(holding.pods.values()), None)
        if user is None:
            return holding.uid, None
        pod = self._state.cluster.pod_with_uid(user)
        stays = pod is not None and not self._leaves(pod)
        return user.uid, pod if stays else None

    def _leaves(self, pod: Pod) -> bool:
        evicted = self._state.nominations.is_evicted(pod.metadata.uid)
        return evicted or is_terminal(pod) or bool(pod.metadata.deletion_timestamp)

    def _may_be_evicted(self, pod: Pod) -> bool:
        if priority(pod) >= priority(self._pod):
            return False
        return all(_allows_evictions(self._state, name) for name in self._classes(pod))

    def _classes(self, pod: Pod) -> set[str]:
        """The names of the classes of all claims of the pod, allocated or not; "" for a claim whose class is not
        known, such as a deleted one."""
        cluster, held = self._state.cluster, self._state.ledger.of_pod(reference(pod))
        found, names = {one.class_name for one in held}, {one.claim for one in held if one.named}
        for key in named_claims(pod):
            claim, builtin = cluster.claim(key), cluster.mirror(key)
            if key[1] not in names and (builtin is None or is_mirror(builtin)):
                found.add(claim.spec.resource_class_name if claim is not None else "")
        for mirror in filter(is_mirror, cluster.generated.of_pod(pod)):
            request = class_request(mirror)
            found.add(request.class_name if request is not None else "")
        return found

    def _holders(self, node: str) -> list[Holder]:
        potential_victims = self._potential_victims[node].items()
        return [
            Holder(uid, priority(one.pod), sum(map(len, one.held.values())))
            for uid, one in potential_victims
            if one.pod is not None
        ]

    def _removed(self, node: str, victims: Sequence[Holder]) -> Iterator[tuple[str, _PotentialVictim]]:
        """The pods that hold claims on the node and are terminating or among the victims, by UID."""
        uids = {one.uid for one in victims}
        return ((uid, one) for uid, one in self._potential_victims[node].items() if one.pod is None or uid in uids)

    def _suffices(self, node: str, victims: Sequence[Holder], below: int | None = None) -> bool:
        """Whether the node would have enough for the pod and its claims without the victims, beside what is kept
        there for others; with `below`, once the scheduler has evicted the pods of a lower priority than that."""
        others = other_nominations(self._state, self._pod.metadata.uid, priority(self._pod), node)
        gone = {uid for uid, _ in self._removed(node, victims)}.union(*(one.terminating for one in others))
        cluster = self._state.cluster
        used, pods = cluster.usage.without(node, gone, cluster.allocatable(node), below)
        amounts = Counter(used)
        for one in others:
            amounts.update(one.amounts)
        if self._nodes.misfit_with_usage(node, amounts, pods + len(others)):
            return False
        changes = AssumedChanges(gone, [one.amounts for one in others])
        if self._nodes.room_shortage_after(node, self._demand.reserving, changes):
            return False  # whatever the scheduler would evict: it does so after the allocation
        return all(self._driver_suffices(name, node, victims, others) for name in self._demand.requests)

    def _driver_suffices(self, name: str, node: str, victims: Sequence[Holder], others: list[Nomination]) -> bool:
        if name not in self._drivers:
            if (name, node) not in self._viable:
                answers = self._state.drivers[name].viable(self._demand.requests[name], (node,))
                self._viable[name, node] = bool(viable_for_all((node,), answers))
            return self._viable[name, node]
        freed = {uid for _, one in self._removed(node, victims) for uid in one.held[name]}
        freed.update(*(one.freed.get(name, frozenset()) for one in others))
        return is_enough(self._state, name, self._demand, node, others, freed)

    def _planned(self, choice: Choice, *, scheduler_evicts: bool = False) -> Plan:
        gone = dict(self._removed(choice.node, choice.victims))
        return Plan(
            choice.node,
            tuple(one.pod for one in gone.values() if one.pod is not None),
            frozenset(uid for uid, one in gone.items() if one.pod is None),
            {name: frozenset(uid for one in gone.values() for uid in one.held[name]) for name in self._drivers},
            scheduler_evicts,
        )


def _is_exclusive(holding: Holding) -> bool:
    """Whether it is an exclusive generated claim of one pod."""
    return not (holding.named or holding.shareable or holding.standalone or len(holding.pods) > 1)
