"""Chooses victims: the pods of lower priority whose eviction lets drivers allocate for a pod. Decided from the
state, for the controller and `explain`.

Asked for a pod that nothing is viable for. Drivers are asked about a node "as if these claims were free"; those
that cannot tell are asked as ever. Victims are pods of lower priority that hold exclusive generated claims on one
node, and nothing of a class that does not say `preemption: LowerPriority`. Pods that leave anyway cost nothing.
Where that is not enough because ordinary pods of lower priority have the node's CPU or the like, the pod's
scheduler can evict these for it once its claims are allocated there.
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
from parley.control.decision.kept import beside, is_enough
from parley.control.holding import Holding
from parley.control.nominations import Nomination
from parley.control.objects.mirror import is_mirror
from parley.control.objects.pod import done, priority, reference
from parley.control.room import Foreseen
from parley.control.state import State
from parley.negotiation.answers import viable_for_all
from parley.negotiation.victims import Choice, Holder, choose
from parley.scheduler.candidates import CandidateNodes, common_nodes
from parley.sdk.checks import DriverFault


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A pod that nothing is viable for. Others may be evicted for claims of these `drivers` (`may_take`);
    `scheduler_evicts`: its scheduler may evict ordinary pods of lower priority for it."""

    pod: Pod
    claims: Sequence[PodClaim]
    demand: Demand
    drivers: Collection[str]
    scheduler_evicts: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The pods `victims` would have to be evicted from the node; those with the UIDs `leaving` leave it anyway.

    `freed` are the UIDs of what all of them hold there, by driver. `scheduler_evicts`: the pod's scheduler would
    have to evict ordinary pods there afterwards.
    """

    node: str
    victims: tuple[Pod, ...]
    leaving: frozenset[str]
    freed: Mapping[str, frozenset[str]]
    scheduler_evicts: bool = False


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What a plan must do without: nodes that are `shunned`, pods with these UIDs that are `spared`, and nodes
    that are `stuck`, where it was waited long enough for who is leaving."""

    shunned: Collection[str] = ()
    spared: Collection[str] = ()
    stuck: Collection[str] = ()


@dataclass(slots=True)
class _Tenant:
    """A pod that holds something on a node: `held` are the claims' UIDs by driver. `pod` is None if it leaves."""

    pod: Pod | None
    held: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class Promise(NamedTuple):
    """That a node would do if all left that may be made to; the smaller one is looked at first. `needs_scheduler`:
    not without its scheduler evicting ordinary pods there. The rest is the order of `ClaimVictims`."""

    needs_scheduler: bool
    not_own: bool
    nobody_leaves: bool
    lowest: int


def may_take(state: State, pod: Pod, demand: Demand, claims: Sequence[PodClaim]) -> frozenset[str]:
    """The drivers for whose claims others may be evicted for the pod: their pending claims' classes say so, and
    they can tell what would be viable then. None for a pod that preempts nobody."""
    if pod.spec.node_name or pod.spec.preemption_policy == "Never":
        return frozenset()
    nominated = state.nominations.of(pod.metadata.uid) is not None
    if not nominated and not state.cluster.usage.any_below(priority(pod)):
        return frozenset()
    return _takeable(state, demand, claims)


def _takeable(state: State, demand: Demand, claims: Sequence[PodClaim]) -> frozenset[str]:
    spared = {
        claim.class_.driver_name
        for claim in claims
        if claim.class_ is not None and claim.class_.preemption == "Never"
    }
    return frozenset(name for name in demand.requests if name not in spared and state.drivers[name].foresees)


def evictable(state: State, preemptor: Preemptor, excluded: Collection[str]) -> Evictable:
    """Where others may be evicted for the pod, as things are when it is asked: there may be nobody on a node yet.
    Costs less than to look at the pod once more, and at all nodes."""
    pod, demand, claims = preemptor.pod, preemptor.demand, preemptor.claims
    if pod.spec.node_name or pod.spec.preemption_policy == "Never":
        return lambda _: False
    drivers = _takeable(state, demand, claims)
    if not drivers:
        return lambda _: False
    asking = replace(preemptor, drivers=drivers, claims=tuple(claims))

    def promises(node: str) -> bool:
        try:
            return ClaimVictims(state, asking, Exclusions(excluded)).promise(node) is not None
        except DriverFault:
            return True

    return promises


class ClaimVictims:
    """The search for one pod's victims; `exclusions` are what its plan may not rely on. `among` are the nodes to
    look at, None: all."""

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
        self._known: dict[str, dict[str, _Tenant]] | None = None
        self._viable: dict[tuple[str, str], bool] = {}

    @property
    def wanted(self) -> Hashable:
        """Equal for searches that find the same as long as nothing changes, but for the pods that are spared."""
        shunned, stuck = frozenset(self._exclusions.shunned), frozenset(self._exclusions.stuck)
        return (
            self._demand.wanted,
            self._nodes.alike,
            frozenset(self._drivers),
            self._scheduler_evicts,
            shunned,
            stuck,
            bool(self._exclusions.spared),
        )

    def promise(self, node: str) -> Promise | None:
        """What the node promises if all left that may be made to; None if that is not enough."""
        self._known = {node: self._tenants_on(node)}
        if not self._known[node]:
            return None
        everybody = self._holders(node)
        below = priority(self._pod) if self._scheduler_evicts else None
        if not self._does(node, everybody, below):
            return None
        return Promise(below is not None and not self._does(node, everybody), *self._rank(node))

    def plan(self) -> Plan | None:
        """What would do least harm; None if nothing would help. Where others left a node for the pod, that comes
        first, and otherwise nodes where its scheduler would not have to evict anybody."""
        holders = {node: self._holders(node) for node in self._order()}
        with_scheduler = partial(self._does, below=priority(self._pod))
        if self._scheduler_evicts and (own := self._own_node()) in holders and with_scheduler(own, ()):
            return self._planned(Choice(own, ()), scheduler_evicts=not self._does(own, ()))
        if (found := choose(holders, self._does)) is not None:
            return self._planned(found)
        if self._scheduler_evicts and (found := choose(holders, with_scheduler)) is not None:
            return self._planned(found, scheduler_evicts=True)
        return None

    def _own_node(self) -> str:
        """The node that the pod is nominated for, or ""."""
        nomination = self._state.nominations.of(self._pod.metadata.uid)
        return nomination.node if nomination is not None else ""

    def _order(self) -> list[str]:
        """The nodes to look at: the one that the pod is nominated for, then those where somebody leaves anyway,
        then those with the least important pods."""
        return sorted(sorted(self._tenants), key=self._rank)

    def _rank(self, node: str) -> tuple[bool, bool, int]:
        tenants = self._tenants[node].values()
        priorities = [priority(one.pod) for one in tenants if one.pod is not None]
        return node != self._own_node(), all(one.pod is not None for one in tenants), min(priorities, default=0)

    @property
    def _tenants(self) -> Mapping[str, Mapping[str, _Tenant]]:
        """Who leaves each node, and who may be made to, by UID."""
        if self._known is None:
            nodes = self._among if self._among is not None else self._state.ledger.nodes()
            self._known = {node: found for node in nodes if (found := self._tenants_on(node))}
        return self._known

    def _tenants_on(self, node: str) -> dict[str, _Tenant]:
        found: dict[str, _Tenant] = {}
        for holding in self._takeable(node):
            uid, pod = self._holder(holding)
            if pod is None:
                counts = node not in self._exclusions.stuck
            else:
                counts = uid not in self._exclusions.spared and self._may_be_evicted(pod)
            if counts:
                found.setdefault(uid, _Tenant(pod)).held[holding.driver].add(holding.uid)
        return found

    def _takeable(self, node: str) -> Iterable[Holding]:
        """What its drivers may take on the node, if the pod would fit there if the node were empty."""
        if node in self._exclusions.shunned or self._nodes.misfit_with_usage(node, {}, 0):
            return ()
        held = self._state.ledger.on(node)
        return (one for one in held if one.driver in self._drivers and _is_exclusive(one))

    def _holder(self, holding: Holding) -> tuple[str, Pod | None]:
        """The pod that has it, and its UID; None if it leaves, or is gone and its node has yet to confirm that."""
        user = next(iter(holding.pods.values()), None)
        if user is None:
            return holding.uid, None
        pod = self._state.cluster.that_pod(user)
        stays = pod is not None and not self._leaves(pod)
        return user.uid, pod if stays else None

    def _leaves(self, pod: Pod) -> bool:
        evicted = self._state.nominations.is_evicted(pod.metadata.uid)
        return evicted or done(pod) or bool(pod.metadata.deletion_timestamp)

    def _may_be_evicted(self, pod: Pod) -> bool:
        if priority(pod) >= priority(self._pod):
            return False
        known = map(self._state.cluster.class_, self._classes(pod))
        return all(class_ is not None and class_.preemption == "LowerPriority" for class_ in known)

    def _classes(self, pod: Pod) -> set[str]:
        """The names of the classes of all that the pod may use; "" for a claim that is gone, whose class is not
        known."""
        cluster, held = self._state.cluster, self._state.ledger.of_pod(reference(pod))
        found, names = {one.class_name for one in held}, {one.claim for one in held if one.named}
        for key in named_claims(pod):
            claim, builtin = cluster.claim(key), cluster.mirror(key)
            if key[1] not in names and (builtin is None or is_mirror(builtin)):
                found.add(claim.spec.resource_class_name if claim is not None else "")
        return found

    def _holders(self, node: str) -> list[Holder]:
        tenants = self._tenants[node].items()
        return [
            Holder(uid, priority(one.pod), sum(map(len, one.held.values())))
            for uid, one in tenants
            if one.pod is not None
        ]

    def _gone(self, node: str, victims: Sequence[Holder]) -> Iterator[tuple[str, _Tenant]]:
        uids = {one.uid for one in victims}
        return ((uid, one) for uid, one in self._tenants[node].items() if one.pod is None or uid in uids)

    def _does(self, node: str, victims: Sequence[Holder], below: int | None = None) -> bool:
        """Whether pod and claims would find enough on the node, beside what is kept there for others; with `below`
        once the scheduler has evicted the pods of a priority below that."""
        others = beside(self._state, self._pod.metadata.uid, priority(self._pod), node)
        gone = {uid for uid, _ in self._gone(node, victims)}.union(*(one.leaving for one in others))
        cluster = self._state.cluster
        used, pods = cluster.usage.without(node, gone, cluster.allocatable(node), below)
        amounts = Counter(used)
        for one in others:
            amounts.update(one.amounts)
        if self._nodes.misfit_with_usage(node, amounts, pods + len(others)):
            return False
        foreseen = Foreseen(gone, [one.amounts for one in others])
        if self._nodes.crowded_once(node, self._demand.reserving, foreseen):
            return False  # also where its scheduler would evict others: it does so after the allocation
        return all(self._served(name, node, victims, others) for name in self._demand.requests)

    def _served(self, name: str, node: str, victims: Sequence[Holder], others: list[Nomination]) -> bool:
        if name not in self._drivers:
            if (name, node) not in self._viable:
                answers = self._state.drivers[name].viable(self._demand.requests[name], (node,))
                self._viable[name, node] = bool(viable_for_all((node,), answers))
            return self._viable[name, node]
        freed = {uid for _, one in self._gone(node, victims) for uid in one.held[name]}
        freed.update(*(one.freed.get(name, frozenset()) for one in others))
        return is_enough(self._state, name, self._demand, node, others, freed)

    def _planned(self, choice: Choice, *, scheduler_evicts: bool = False) -> Plan:
        gone = dict(self._gone(choice.node, choice.victims))
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
