"""One pod's negotiation: proposes candidate nodes, asks the drivers, and selects a node or lets the pod wait."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.claims.podclaims import PREEMPTION, PodClaim
from parley.control.decision.decide import (
    Blocked,
    Search,
    admit,
    all_refused,
    best,
    none_viable,
    question,
    survey,
)
from parley.control.decision.demand import Demand
from parley.control.limits import topic as limit_topic
from parley.control.objects.pod import priority, reference
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.client import ApiError, OutcomeUnknown
from parley.kube.queue import Requeue
from parley.negotiation.rounds import MAX_CANDIDATES, Outcome
from parley.negotiation.states import ClaimState
from parley.negotiation.waiting import Topic
from parley.scheduler.allocated_elsewhere import allocated_elsewhere
from parley.scheduler.attempts import Attempt
from parley.scheduler.candidates import CandidateNodes, FittingFirst, PreemptibleNodes, common_nodes, may_preempt
from parley.scheduler.claim_preemption import ClaimPreemption, Postponed
from parley.scheduler.claim_victims import Preemptor, drivers_allowing_preemption, evictable
from parley.scheduler.placement import NotAllocated, Placement
from parley.scheduler.pods import TURN_SECONDS, Pods, RefusedEverywhere, now
from parley.scheduler.result import Result, Wait, wait
from parley.scheduler.standalone import Failure, StandaloneSessions

READING_SECONDS = 0.2
"""The delay before checking again whether the objects that limit the pod's nodes have been read."""


class Negotiator:
    """Selects nodes for pods. `candidates` is how many nodes a round asks about at most."""

    def __init__(
        self,
        state: State,
        pods: Pods,
        sessions: StandaloneSessions,
        placement: Placement,
        preemption: ClaimPreemption,
        candidates: int,
    ) -> None:
        self._state = state
        self._pods = pods
        self._sessions = sessions
        self._placement = placement
        self.preemption = preemption
        self.candidates = candidates

    async def negotiate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: CandidateNodes | None = None
    ) -> Result:
        """Take the next step to a node for the pod's pending claims, one of `nodes` if these are given."""
        attempt = self._pods.attempt(pod)
        if left := self._pods.failure_pause(key, pod):
            return Requeue(left)
        attempt.offer_ended()
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        demand = admit(self._state, reference(pod), pending, self._pods.attempt(pod).begun)
        if isinstance(demand, Blocked):
            return await self._not_admitted(pod, claims, demand)
        attempt.turn_kept_until = None
        own = nodes is None
        if own and not pod.spec.node_name and not self._state.cluster.placement_constraints_synced(pod):
            return Requeue(READING_SECONDS)
        if nodes is None:
            nodes = self._candidates_of(pod, claims, demand)
        exact = not demand.standalone and self._offers(attempt, pod, claims, pending)
        search = self._search(attempt, nodes, exact=exact)
        evicted_on = attempt.evicted_on
        if evicted_on and search.nodes.fits(evicted_on) and not search.nodes.evicts(evicted_on):
            attempt.evictions_finished()
        if demand.standalone:
            outcome = await self._with_answers(key, pod, pending, demand, search)
        else:
            outcome = survey(self._state, demand, search)
        if isinstance(outcome, Blocked):
            return await self._not_admitted(pod, claims, outcome)
        if not isinstance(outcome, Outcome):
            return outcome
        if own and not demand.standalone and attempt.refused.issuperset(outcome.viable):
            search, outcome = self._with_evictions(pod, claims, demand, search, outcome)
            exact = exact and search.nodes is nodes
        attempt.outcome, attempt.drivers = outcome, demand.drivers
        if outcome.viable:
            return await self._proceed(key, pod, claims, demand, search, exact=exact)
        return await self._nothing_viable(pod, claims, demand, search, own=own)

    def _candidates_of(self, pod: Pod, claims: Sequence[PodClaim], demand: Demand) -> CandidateNodes:
        """The nodes where the pod fits. Standalone drivers are also asked, in the same rounds, about nodes where
        it would fit if the scheduler evicted pods of lower priority."""
        classes, only = [claim.class_ for claim in claims if claim.class_], common_nodes(claims)
        if demand.standalone and may_preempt(self._state.cluster, pod):
            return FittingFirst(self._state, pod, classes, only, self._evicting_on(pod))
        return CandidateNodes(self._state, pod, classes, only)

    def _evicting_on(self, pod: Pod) -> str:
        """The only node that may be selected though the scheduler has to evict pods of lower priority there; "" is
        any. The scheduler may be binding the pod to that node: it is requeued for when that time is over."""
        left = self._pods.attempt(pod).nominated_seconds_left(pod, now())
        if left:
            self._pods.requeue((pod.metadata.namespace, pod.metadata.name), left)
        return pod.status.nominated_node_name if left else ""

    async def _not_admitted(self, pod: Pod, claims: Sequence[PodClaim], blocked: Blocked) -> Result:
        """The wait of a pod whose claims were not admitted; unless it is bound, it holds nothing meanwhile. While
        its parameters are being read again it keeps its nomination and, for `TURN_SECONDS`, its turn: what it
        waited for may just have become free."""
        attempt = self._pods.attempt(pod)
        if not blocked.problem.transient:
            self._state.nominations.end(pod.metadata.uid)
            attempt.turn_kept_until = None
            if pod.spec.node_name:  # its containers may be using what it holds
                self._sessions.end(pod)
            elif self._holds(pod, claims) or self._state.ledger.expects(reference(pod)):
                await self._placement.release_all(pod)
                return Requeue()
            return wait(blocked)
        if attempt.turn_kept_until is None:
            attempt.turn_kept_until = now() + TURN_SECONDS
        left = attempt.turn_kept_until - now()
        return replace(wait(blocked, left if left > 0 else None), keeps_turn=left > 0)

    def _with_evictions(
        self, pod: Pod, claims: Sequence[PodClaim], demand: Demand, search: Search, outcome: Outcome
    ) -> tuple[Search, Outcome]:
        """Survey also the nodes where the scheduler would have to evict pods of lower priority: no other node is
        viable, or the scheduler refused those that are."""
        if not may_preempt(self._state.cluster, pod):
            return search, outcome
        classes = [claim.class_ for claim in claims if claim.class_]
        wider = PreemptibleNodes(self._state, pod, classes, common_nodes(claims), self._evicting_on(pod))
        evicting = replace(search, nodes=wider)
        found = survey(self._state, demand, evicting)
        if found.viable:
            return evicting, found
        return replace(search, wider=wider), outcome if outcome.candidates else found

    def _search(self, attempt: Attempt, nodes: CandidateNodes, *, exact: bool) -> Search:
        return Search(
            nodes,
            attempt.excluded,
            own_line=bool(attempt.refused),
            limit=self.candidates,
            enough=MAX_CANDIDATES if exact else 1 + len(attempt.refused | attempt.avoided),
            ask_many=exact,
        )

    async def _with_answers(
        self, key: Key, pod: Pod, pending: Sequence[PodClaim], demand: Demand, search: Search
    ) -> Outcome | Blocked | Result:
        """The outcome with the standalone drivers' answers, or what is next if there is no outcome yet."""
        inside = question(self._state, demand, search)
        answered = await self._sessions.advance(pod, demand, search.nodes, inside)
        if isinstance(answered, Failure):
            return await self._failed(key, pod, answered)
        if isinstance(answered, Outcome):
            admitted = admit(
                self._state, reference(pod), pending, self._pods.attempt(pod).begun
            )  # other pods may have been allocated something meanwhile
            if isinstance(admitted, Blocked):
                return admitted
        return answered

    @staticmethod
    def _holds(pod: Pod, claims: Sequence[PodClaim]) -> bool:
        return any(c.holding and pod.metadata.uid in c.holding.pods for c in claims)

    async def _failed(self, key: Key, pod: Pod, failure: Failure) -> Requeue:
        pause = self._pods.attempt(pod).failures.begin(now())
        await self._placement.release_all(pod)
        await self._placement.failed(key, pod, failure.node, failure.message, failure.permanent)
        return Requeue(pause)

    async def give_up_elsewhere(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Release everything and begin a growing pause if a standalone driver allocated elsewhere than on the
        selected node."""
        failure = allocated_elsewhere(pod, self._pods.existing_attempt(reference(pod)), claims)
        return await self._failed(key, pod, failure) if failure is not None else None

    def _offers(self, attempt: Attempt, pod: Pod, claims: Sequence[PodClaim], pending: Sequence[PodClaim]) -> bool:
        """Whether the scheduler gets to choose among offered nodes. Not for named claims, as an offer can't serve
        two pods, nor without a node part: the kubelet would look for a plugin for the result. A scheduler that has
        nominated a node may still be binding a pod whose claims were cleared: an offer it has to reserve anew."""
        if pod.spec.node_name or len(pending) < len(claims) or any(claim.claim is not None for claim in claims):
            return False
        classes = [claim.class_ for claim in pending if claim.class_ is not None]
        if not self._placement.can_offer or any(class_.node_part == "None" for class_ in classes):
            return False
        chosen = attempt.exact or bool(pod.status.nominated_node_name)
        return chosen or any(class_.placement == "Exact" for class_ in classes)

    async def _nothing_viable(
        self, pod: Pod, claims: Sequence[PodClaim], demand: Demand, search: Search, *, own: bool
    ) -> Result:
        holds = self._holds(pod, claims)
        expects = not demand.standalone and self._state.ledger.expects(reference(pod))
        if not pod.spec.node_name and (holds or expects):
            await self._placement.release_all(pod)
            return Requeue()
        if demand.standalone:
            deque(search.nodes, maxlen=0)  # a session goes on with nodes that were evaluated before
        outcome = self._pods.attempt(pod).outcome
        evicts = may_preempt(self._state.cluster, pod)
        known = evicts or pod.spec.preemption_policy == "Never"
        preemptor = Preemptor(pod, claims, demand, frozenset(), evicts)
        where = evictable(self._state, preemptor, search.excluded) if own and known else None
        blocked = none_viable(self._state, claims, demand, search, outcome, evictable=where)
        begun = self._state.nominations.of(pod.metadata.uid) is not None
        drivers = (
            drivers_allowing_preemption(self._state, pod, demand, claims)
            if own and not demand.standalone and (begun or not self._evicting_on(pod))
            else frozenset()
        )
        if not drivers:
            self._state.nominations.end(pod.metadata.uid)
            return wait(blocked, self._sessions.repeats_in(pod))
        problem = replace(blocked.problem, topics=(*blocked.problem.topics, PREEMPTION))
        blocked = replace(blocked, problem=problem)
        room = await self._make_room(replace(preemptor, drivers=drivers), blocked)
        if isinstance(room, Wait):
            return room
        if room is None:
            return wait(blocked)
        if self._pods.attempt(pod).evictions.left(now()):
            blocked = replace(blocked, line=pod.metadata.uid)  # the pause is the pod's own: others may be served
        return _postponed(blocked, room)

    async def _make_room(self, preemptor: Preemptor, blocked: Blocked) -> Wait | Postponed | None:
        """Have pods evicted. If that fails, the pod waits in its line until the queue retries."""
        try:
            return await self.preemption.make_room(preemptor)
        except (ApiError, OutcomeUnknown):
            meta, waiting = preemptor.pod.metadata, wait(blocked)
            self._pods.line_up((meta.namespace, meta.name), waiting.line, waiting.topics, waiting.helps)
            raise

    async def _proceed(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, search: Search, *, exact: bool
    ) -> Result:
        attempt = self._pods.attempt(pod)
        if not pod.spec.node_name and not demand.standalone and self._pods.overtakes(pod, _used(claims, demand)):
            return self._pods.give_way(key, pod)
        viable = [node for node in attempt.outcome.viable if not demand.standalone or search.nodes.fits(node)]
        if not viable:
            self._sessions.end(pod)
            return Requeue()
        refused = attempt.still_refused(pod.status.nominated_node_name)
        fresh = [node for node in viable if node not in refused]
        if not fresh and not pod.spec.node_name:
            if (waiting := self._while_evicting(pod, attempt, claims, demand, search)) is not None:
                return waiting
            if attempt.refusals.left(now()) or not attempt.refusals.until:
                return await self._all_refused(pod, attempt, claims, demand, search)
            attempt.begin_again()
            session = attempt.standalone.session
            if demand.standalone and session is not None and session.is_void:
                return Requeue()
            fresh = viable
        if exact:
            untried = [node for node in fresh if node not in attempt.avoided] or fresh
            return await self._placement.offer(key, pod, claims, demand, untried[:MAX_CANDIDATES])
        standalone = self._sessions.scores(pod, attempt.outcome, demand) if demand.standalone else {}
        candidates = fresh or viable
        fitting = [node for node in candidates if not search.nodes.evicts(node)]
        evicting = [node for node in candidates if node not in fitting and node not in attempt.avoided]
        if (nominated := pod.status.nominated_node_name) in fitting and nominated not in attempt.avoided:
            selected = nominated  # its scheduler tries it first, or may be binding the pod to it
        elif attempt.avoided.issuperset(fitting) and evicting:
            selected = evicting[0]
        else:
            selected = best(self._state, demand, fitting or candidates, attempt.avoided, standalone)
        evicts = search.nodes.evicts(selected)
        if evicts and (waiting := self._while_evicting(pod, attempt, claims, demand, search)) is not None:
            return waiting
        attempt.node_selected(selected, evicts=evicts)
        result = await self._placement.allocate(key, pod, claims, demand, selected, offered=False)
        return result.result if isinstance(result, NotAllocated) else result

    def _while_evicting(
        self, pod: Pod, attempt: Attempt, claims: Sequence[PodClaim], demand: Demand, search: Search
    ) -> Wait | None:
        """The wait while the scheduler may be evicting pods where it cleared the pod's allocation, as it does
        before evictions. None if it has had the time for that. Until then no pods are evicted on other nodes."""
        terminating = self._state.cluster.usage.any_terminating(attempt.evicting, priority(pod))
        left = attempt.eviction_seconds_left(now(), terminating=terminating)
        if not left:
            return None
        message = f"node {attempt.evicting}: the pod's scheduler evicts other pods of lower priority there"
        others = attempt.refused - {attempt.evicting}
        blocked = all_refused(self._state, claims, demand, search, others, evictable=lambda _: False)
        problem = replace(blocked.problem, code=reasons.PREEMPTING, message=message)
        return wait(replace(blocked, problem=problem, line=RefusedEverywhere(pod.metadata.uid)), left)

    async def _all_refused(
        self, pod: Pod, attempt: Attempt, claims: Sequence[PodClaim], demand: Demand, search: Search
    ) -> Wait:
        """The wait of a pod that the scheduler refused on every viable node, for reasons of its own. Pods may be
        evicted for it on other nodes; if none are, its nomination ends."""
        where = evictable(self._state, Preemptor(pod, claims, demand, frozenset()), search.excluded)
        blocked = all_refused(self._state, claims, demand, search, attempt.refused, evictable=where)
        blocked = replace(blocked, line=RefusedEverywhere(blocked.line))
        drivers = (
            drivers_allowing_preemption(self._state, pod, demand, claims) if not demand.standalone else frozenset()
        )
        room = await self._make_room(Preemptor(pod, claims, demand, drivers), blocked) if drivers else None
        if isinstance(room, Wait):
            return room
        self._state.nominations.end(pod.metadata.uid)
        left = attempt.refusals.left_or_begin(now())
        if room is None:
            return wait(blocked, after=left)
        return _postponed(replace(blocked, line=RefusedEverywhere(pod.metadata.uid)), room, left)


def _postponed(blocked: Blocked, room: Postponed, at_most: float = inf) -> Wait:
    """The wait of a blocked pod whose evictions are postponed, reported with the reason for that."""
    problem = blocked.problem
    message = f"{problem.message}. {room.message}"
    reported = replace(problem, code=room.code or problem.code, message=message)
    return wait(replace(blocked, problem=reported), min(room.after, at_most))


def _used(claims: Sequence[PodClaim], demand: Demand) -> list[Topic]:
    """The topics of what the demand uses up: drivers' resources, and the namespace's limits."""
    limited = [one.class_name for one in claims if one.class_ is not None and one.class_.limits]
    limits = (limit_topic(name, demand.pod.namespace) for name in dict.fromkeys(limited))
    return [*(("driver", name) for name in demand.requests), *limits]
