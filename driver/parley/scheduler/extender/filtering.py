"""Finds the viable ones among a scheduler's candidate nodes, from memory. Reserves and writes nothing."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.claims.messages import being_allocated, first_in_line
from parley.control.claims.podclaims import PREEMPTION, PodClaim, Problem
from parley.control.decision.decide import (
    Blocked,
    Evictable,
    Search,
    admit,
    as_transient,
    best,
    by_preference,
    class_topics,
    none_viable,
    question,
    survey,
)
from parley.control.decision.demand import Demand, demand_of
from parley.control.objects.pod import priority, reference
from parley.control.state import State
from parley.kube.cache import Key
from parley.negotiation.rounds import Outcome, negotiate
from parley.negotiation.states import ClaimState
from parley.negotiation.waiting import Topic
from parley.scheduler.candidates import PreemptibleNodes, ProposedNodes, common_nodes, may_preempt
from parley.scheduler.claim_victims import Preemptor, drivers_allowing_preemption, evictable
from parley.scheduler.extender.assumed import AssumedPod, AssumedPods
from parley.scheduler.extender.contention import TAKEN, LeastAssumed, with_assumed_pods
from parley.scheduler.extender.expected import expected_claims
from parley.scheduler.extender.scope import DEVICE_CLASSES_CHANGED, dra_only, foreign_topics, unsupported
from parley.scheduler.pods import Pods
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.referenced import ParametersUnavailable

ASSUMED: Topic = ("assumed",)
"""The topic that changes when an assumed pod is bound, or is not assumed any more."""

_AssumedClaims = Mapping[str, tuple[AssumedPod, str]]
"""The pending claims that are about to be allocated for other pods: by UID, that pod and the node."""

_UNUSABLE = {ClaimState.CLEARED, ClaimState.UNKNOWN, ClaimState.OFFERED, ClaimState.MISPLACED}


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The viable nodes and the pod to assume on them; or what blocks the pod.

    `must_release`: what the pod holds is unusable and has to be released first. `standalone`: standalone drivers
    have to be asked about the nodes, and to allocate, before one of them is viable. `by_nodes`: only pods with the
    same candidate nodes wait in that line.
    """

    viable: tuple[str, ...] = ()
    assumed: AssumedPod | None = None
    blocked: Blocked | None = None
    must_release: bool = False
    standalone: bool = False
    by_nodes: bool = False


def unusable(pod: Pod, claims: Sequence[PodClaim]) -> bool:
    """Whether an unbound pod's claims are in a state in which it can't be bound."""
    return any(claim.problem is None and claim.state(pod) in _UNUSABLE for claim in claims)


class CandidateFilter:
    """Finds the viable nodes. `candidates` is how many nodes drivers are asked about at a time."""

    def __init__(self, state: State, pods: Pods, assumed: AssumedPods, candidates: int) -> None:
        self._state = state
        self._pods = pods
        self._assumed = assumed
        self._candidates = candidates

    def filter(self, pod: Pod, names: Sequence[str], *, has_preferences: bool = False) -> FilterResult:
        """The result for these nodes, taking the assumed pods into account.

        `has_preferences`: the pod prefers some nodes to others, so that it is worth asking about more than the
        first few.
        """
        claims = expected_claims(self._state, pod)
        if why := unsupported(pod, claims):
            topics = foreign_topics(pod, claims)
            return FilterResult(blocked=Blocked(Problem(reasons.OTHER_SCHEDULER, why, topics), pod.metadata.uid))
        holds_some = self._state.ledger.expects(reference(pod)) or any(
            claim.holding is not None and pod.metadata.uid in claim.holding.pods for claim in claims
        )
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        if problem is not None:
            return FilterResult(blocked=Blocked(problem, (problem.code, *problem.topics)), must_release=holds_some)
        if unusable(pod, claims):
            problem = Problem(reasons.ALLOCATION_FAILED, "what the pod held is being released", (), True)
            return FilterResult(blocked=Blocked(problem, pod.metadata.uid), must_release=True)
        result = self._negotiate(pod, claims, names, has_preferences=has_preferences)
        if result.blocked is not None and holds_some and not result.standalone:
            return self._while_evicting(pod, claims, result.blocked) or replace(result, must_release=True)
        return result

    def _while_evicting(self, pod: Pod, claims: Sequence[PodClaim], blocked: Blocked) -> FilterResult | None:
        """The result of a pod whose scheduler is evicting pods where its standalone drivers have allocated, by its
        last preempt call: the claims stay allocated. None if that is not so."""
        if not any(claim.holding is not None and claim.holding.standalone for claim in claims):
            return None
        where = self._pods.attempt(pod).extender.preemptible.intersection(common_nodes(claims) or ())
        if not where or any(claim.state(pod) is ClaimState.PENDING for claim in claims):
            return None
        message = f"node {min(where)}: the pod's scheduler has to evict other pods of lower priority there"
        problem = Problem(reasons.PREEMPTING, message, blocked.problem.topics)
        return FilterResult(blocked=replace(blocked, problem=problem), by_nodes=True)

    def viable(self, pod: Pod, names: Sequence[str]) -> frozenset[str]:
        """All of the nodes that are viable at present, for the scheduler's preemption. Of the assumed pods only
        those with the pod's named claims count. No nodes where room is reserved, because what its evicted users
        gave up would stay reserved; if the pod is nominated, only its nominated node."""
        names = self.unreserved(names)
        claims = expected_claims(self._state, pod)
        pending = [c for c in claims if c.problem is None and c.state(pod) is ClaimState.PENDING]
        if unsupported(pod, claims) or any(c.problem is not None or c.standalone for c in claims):
            return frozenset()
        assumed_claims = self._assumed_claims(pod, pending)
        if self._of_another(pod, claims, assumed_claims) is not None:
            return frozenset()
        names = self._nominated(pod, names)
        nodes = self.nodes(pod, claims, _only(claims, assumed_claims), names)
        pending = [claim for claim in pending if claim.uid not in assumed_claims]
        if not pending:
            return frozenset(nodes)
        try:
            attempt = self._pods.attempt(pod)
            demand = demand_of(self._state.drivers, reference(pod), pending, attempt.begun)
            asked = question(self._state, demand, Search(nodes, attempt.excluded))
            return frozenset(negotiate(nodes, asked, enough=len(names)).viable)
        except (BadParameters, ParametersUnavailable, DriverFault):
            return frozenset()

    def unreserved(self, names: Sequence[str]) -> Sequence[str]:
        """The nodes where no room is reserved."""
        ledger = self._state.ledger
        return [name for name in names if not ledger.reserving(name)] if ledger.reserves else names

    def claimless(self, pod: Pod, names: Sequence[str]) -> FilterResult:
        """The result for a pod without claims: it needs room beside what is reserved on the nodes."""
        if not self._state.ledger.reserves:
            return FilterResult(tuple(names))
        nodes = ProposedNodes(self._state, pod, (), None, names)
        if viable := tuple(name for name in names if nodes.fits(name)):
            return FilterResult(viable)
        nothing = demand_of(self._state.drivers, reference(pod), ())
        return self._none_viable((), nothing, Search(nodes, {}), Outcome(), transient=False)

    def nodes(
        self,
        pod: Pod,
        claims: Sequence[PodClaim],
        only: Set[str] | None,
        names: Sequence[str],
        preemptible: Set[str] = frozenset(),
    ) -> ProposedNodes:
        """The eligible ones among the scheduler's candidates, followed by the `preemptible` nodes, where it would
        evict other pods."""
        classes = [c.class_ for c in claims if c.class_]
        evicting = self.unreserved(sorted(preemptible))
        return LeastAssumed(self._state, pod, classes, only, names, self._assumed, evicting)

    def _nominated(self, pod: Pod, names: Sequence[str]) -> tuple[str, ...]:
        """The one of the nodes that the pod is nominated for; all of them if it has no nomination."""
        nomination = self._state.nominations.of(pod.metadata.uid)
        return tuple(name for name in names if nomination is None or nomination.node == name)

    def _negotiate(
        self, pod: Pod, claims: Sequence[PodClaim], names: Sequence[str], *, has_preferences: bool
    ) -> FilterResult:
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        assumed_claims = self._assumed_claims(pod, pending)
        if (another := self._of_another(pod, claims, assumed_claims)) is not None:
            return another
        nodes = self.nodes(pod, claims, _only(claims, assumed_claims), names)
        pending = [claim for claim in pending if claim.uid not in assumed_claims]
        if not pending:
            return self._joining(pod, claims, nodes, frozenset(assumed_claims))
        demand = admit(self._state, reference(pod), pending, self._pods.attempt(pod).begun)
        if isinstance(demand, Blocked):
            return FilterResult(blocked=demand)
        if demand.standalone:
            return _standalone_first(demand)
        return self._survey(
            pod, claims, pending, demand, nodes, frozenset(assumed_claims), has_preferences=has_preferences
        )

    def _assumed_claims(self, pod: Pod, pending: Sequence[PodClaim]) -> _AssumedClaims:
        return {c.uid: who for c in pending if (who := self._assumed.node_of(c.uid, but=reference(pod)))}

    def _of_another(
        self, pod: Pod, claims: Sequence[PodClaim], assumed_claims: _AssumedClaims
    ) -> FilterResult | None:
        """The result of a pod that needs an exclusive claim which another pod is about to get, or any claim that a
        driver is allocating for another pod; None otherwise."""
        for claim in claims:
            if claim.uid in assumed_claims:
                if claim.is_free:
                    return _in_use(claim, assumed_claims[claim.uid][0])
                continue
            if self._state.ledger.allocates(claim.uid, but=pod.metadata.uid):
                return _being_allocated((pod.metadata.namespace, claim.name))
            if claim.is_free and self._state.nominations.is_claim_kept(claim.uid, pod.metadata.uid, priority(pod)):
                return pod_ahead_result((pod.metadata.namespace, claim.name))
        return None

    def _joining(
        self, pod: Pod, claims: Sequence[PodClaim], nodes: ProposedNodes, assumed_claims: frozenset[str]
    ) -> FilterResult:
        """The result of a pod for which nothing has to be allocated, except the claims in `assumed_claims` if
        the pods that these are assumed for are not bound."""
        nothing = demand_of(self._state.drivers, reference(pod), ())
        viable = tuple(nodes)
        if not viable:
            search = Search(nodes, self._pods.attempt(pod).excluded, own_line=True)
            return self._none_viable(claims, nothing, search, Outcome(), transient=bool(assumed_claims))
        if not assumed_claims:
            return FilterResult(viable)
        return FilterResult(viable, AssumedPod(reference(pod), nothing, frozenset(viable), {}, assumed_claims))

    def _survey(
        self,
        pod: Pod,
        claims: Sequence[PodClaim],
        pending: Sequence[PodClaim],
        demand: Demand,
        nodes: ProposedNodes,
        assumed_claims: frozenset[str],
        *,
        has_preferences: bool,
    ) -> FilterResult:
        attempt = self._pods.attempt(pod)
        nominated = self._state.nominations.of(pod.metadata.uid) is not None
        avoided = attempt.avoided if nominated else attempt.avoided | attempt.extender.not_taken
        enough = 1 + len(avoided)
        search = Search(nodes, attempt.excluded, bool(attempt.refused), self._candidates, enough, has_preferences)
        named = assumed_claims.union(claim.uid for claim in pending if claim.claim is not None)
        only_best = bool(named) or (demand.packs and not has_preferences)
        any_will_do = not avoided and not nominated
        best_first = partial(by_preference, self._state, demand) if only_best and any_will_do else None
        plain = question(self._state, demand, search)
        asked = with_assumed_pods(self._assumed, reference(pod), demand, plain, best_first)
        outcome = survey(self._state, demand, search, asked)
        attempt.outcome, attempt.drivers = outcome, demand.drivers
        if not outcome.viable:
            transient = bool(assumed_claims) or any(TAKEN in message for message in outcome.refused.values())
            if not drivers_allowing_preemption(self._state, pod, demand, claims):
                return self._none_viable(claims, demand, search, outcome, transient=transient)
            if may_preempt(self._state.cluster, pod):
                search = replace(search, wider=PreemptibleNodes(self._state, pod, nodes.classes, nodes.only))
            where = evictable(self._state, Preemptor(pod, claims, demand, frozenset()), search.excluded)
            result = self._none_viable(claims, demand, search, outcome, transient=transient, evictable=where)
            return _with_preemption_topic(result)
        viable = tuple(node for node in outcome.viable if node not in avoided)
        if not viable:
            attempt.extender.not_taken.clear()
            viable = outcome.viable
        viable = self._nominated(pod, viable) or viable
        if only_best:
            viable = (best(self._state, demand, viable),)
        assumed = AssumedPod(reference(pod), demand, frozenset(viable), self._units(demand, pending), named)
        return FilterResult(viable, assumed)

    def _units(self, demand: Demand, pending: Sequence[PodClaim]) -> dict[str, dict[str, int]]:
        limited = [claim for claim in pending if claim.class_ is not None and claim.class_.limits]
        counts = demand.units() if limited else {}
        found: dict[str, dict[str, int]] = {}
        for claim in limited:
            found.setdefault(claim.class_name, {})[claim.uid] = counts.get(claim.entry, 1)
        return found

    def _none_viable(
        self,
        claims: Sequence[PodClaim],
        demand: Demand,
        search: Search,
        outcome: Outcome,
        *,
        transient: bool,
        evictable: Evictable | None = None,
    ) -> FilterResult:
        """`transient`: assumed pods are in the way, which may soon be bound elsewhere."""
        blocked = none_viable(self._state, claims, demand, search, outcome, evictable=evictable)
        return FilterResult(blocked=as_transient(blocked, ASSUMED) if transient else blocked, by_nodes=True)


def _with_preemption_topic(result: FilterResult) -> FilterResult:
    """The result of a pod that also waits for a class to allow evictions."""
    assert result.blocked is not None
    problem = result.blocked.problem
    problem = replace(problem, topics=(*problem.topics, PREEMPTION))
    return replace(result, blocked=replace(result.blocked, problem=problem))


def _standalone_first(demand: Demand) -> FilterResult:
    """The result of a pod whose standalone drivers first have to be asked, in the background, and to allocate."""
    names = ", ".join(sorted({demand.drivers[claim.entry] for claim in demand.standalone}))
    message = f"standalone driver {names} is asked first"
    problem = Problem(reasons.WAITING_FOR_DRIVERS, message, tuple(class_topics(demand.standalone)))
    return FilterResult(blocked=Blocked(problem, None), standalone=True)


def _only(claims: Sequence[PodClaim], assumed_claims: _AssumedClaims) -> Set[str] | None:
    """The nodes of all claims that are allocated, or being allocated for other pods; None for all nodes."""
    only = common_nodes(claims)
    for _, node in assumed_claims.values():
        only = frozenset([node]) if only is None else only & {node}
    return only


def pod_ahead_result(claim: Key) -> FilterResult:
    """The result of a pod that needs a free claim while another pod is ahead for it."""
    topic: Topic = ("claim", *claim)
    problem = Problem(reasons.CLAIM_IN_USE, first_in_line(*claim), (topic,), True)
    return FilterResult(blocked=Blocked(problem, ("pod ahead", topic)))


def dra_only_result(names: Set[str]) -> FilterResult:
    """The result of a pod that requests extended resources which only DRA drivers allocate."""
    why = dra_only(names)
    return FilterResult(blocked=Blocked(Problem(reasons.OTHER_SCHEDULER, why, (DEVICE_CLASSES_CHANGED,)), why))


def _being_allocated(claim: Key) -> FilterResult:
    """The result of a pod with a claim that a driver is allocating for a pod of an unmodified scheduler."""
    topic: Topic = ("claim", *claim)
    message = being_allocated(*claim, "another pod")
    return FilterResult(
        blocked=Blocked(Problem(reasons.CLAIM_IN_USE, message, (topic,), True), ("being allocated", topic))
    )


def _in_use(claim: PodClaim, other: AssumedPod) -> FilterResult:
    whom = f"pod {other.pod.namespace}/{other.pod.name}"
    message = being_allocated(other.pod.namespace, claim.name, whom)
    return FilterResult(
        blocked=Blocked(Problem(reasons.CLAIM_IN_USE, message, (ASSUMED,), True), (claim.uid, ASSUMED))
    )
