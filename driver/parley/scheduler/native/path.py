"""The native path: pods of any unmodified scheduler. Look at what is, take the one step that comes first, repeat.

Everything is decided at once from caches and ledger: there is no await between a look and what is held by it.
"""

from collections.abc import Sequence
from dataclasses import replace

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.allocation import Allocator
from parley.control.caches.indexes import named_claims
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.decision.decide import Blocked
from parley.control.holding import Holding
from parley.control.objects import in_use
from parley.control.objects.pod import done, reference
from parley.control.records import Records
from parley.control.restoring import adopt
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.queue import Requeue
from parley.negotiation.nowhere import where
from parley.negotiation.states import ClaimState, Step, next_step
from parley.scheduler.candidates import are_apart
from parley.scheduler.native.turns import out_of_turn
from parley.scheduler.negotiator import Negotiator
from parley.scheduler.placement import Placement
from parley.scheduler.pods import KeptOut, Pods, now
from parley.scheduler.result import AT_ONCE, Result, Wait, wait
from parley.scheduler.standalone import StandaloneSessions
from parley.sdk import PodReference

_USED_BY_OTHERS = frozenset({reasons.CLAIM_IN_USE, reasons.CLAIM_BEING_DELETED, reasons.CLAIM_FAILED})
"""Why a pod does not get an exclusive claim that its scheduler sees allocated, and so may try again and again."""


class NativePath:
    """Negotiates for pods that no other path owns, and puts right what bound pods of all paths hold."""

    def __init__(
        self,
        state: State,
        allocator: Allocator,
        records: Records,
        pods: Pods,
        sessions: StandaloneSessions,
        placement: Placement,
        negotiator: Negotiator,
    ) -> None:
        self._state = state
        self._allocator = allocator
        self._records = records
        self._reporter = pods.reporter
        self._pods = pods
        self._sessions = sessions
        self._placement = placement
        self._negotiator = negotiator

    def owns(self, pod: Pod) -> bool:  # noqa: ARG002 - a SchedulingPath's
        """Whatever is left."""
        return True

    def busy_with(self, pod: Pod) -> bool:  # noqa: ARG002 - a SchedulingPath's
        """Never: the next step is always one from the present state."""
        return False

    async def settle(self, pod: PodReference) -> None:
        """Bindings are posted by schedulers alone."""

    def resume(self) -> None:
        """Go on with what an earlier leader asked standalone drivers to allocate."""
        cluster = self._state.cluster
        for scheduling in cluster.schedulings():
            pod = cluster.pod((scheduling.metadata.namespace, scheduling.metadata.name))
            if pod is not None and scheduling.spec.selected_node and not done(pod):
                self._sessions.resume(pod, scheduling)

    def seen(self, pod: Pod) -> None:
        """What matters of it brings its key into the queue."""

    def terminal(self, pod: Pod) -> None:
        """Standalone drivers need not go on."""
        self._sessions.end(pod)

    def gone(self, pod: PodReference) -> None:
        """Nobody allocates for it any more."""
        self._sessions.give_up(pod)

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Take the next step for the pod."""
        if not claims or pod.spec.scheduling_gates:
            self._pods.leave_line(key)  # it may have waited on another path, and was bound by others
            return None
        return await self._step(key, pod, claims)

    async def _step(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        problem = problem or out_of_turn(self._pods, self._allocator, self._state, pod, claims)
        if problem is not None:
            refused = await self._put_right(pod, [claim for claim in claims if claim.problem is None])
            return refused or await self._stuck(pod, problem)
        if (failed := await self._negotiator.give_up_elsewhere(key, pod, claims)) is not None:
            return failed
        step = next_step((claim.state(pod) for claim in claims), bound=bool(pod.spec.node_name))
        match step:
            case Step.NOTHING if stale := [c for c in claims if c.claim and c.state(pod) is ClaimState.STALE]:
                topics = [("claim", pod.metadata.namespace, claim.name) for claim in stale]
                return Wait("a mirror was written and is not seen yet", topics, stay=True)
            case Step.NOTHING if (misplaced := _misplaced(pod, claims)) is not None:
                return wait(Blocked(misplaced, KeptOut(misplaced.topics)))
            case Step.NOTHING:
                self._pods.leave_line(key)
                self._settled(pod, claims)
                await self._mark_in_use(pod, claims)
                return await self._unplaced(pod, claims)
            case Step.NEGOTIATE:
                return await self._negotiator.negotiate(key, pod, claims)
            case Step.FOLLOW_OFFER if self._half_offered(pod, claims) or self._bound_to_declined(pod, claims):
                self._pods.attempt(pod).offer_ended()
                return await self._release(pod, claims)
            case Step.FOLLOW_OFFER:
                return await self._placement.follow_offer(key, pod, claims) or await self._unchosen(pod, claims)
            case Step.WRITE if not pod.spec.node_name and are_apart(claims):
                return await self._release(pod, claims)
            case Step.WRITE:
                return await self._placement.put_right(pod, claims)
            case Step.ADOPT:
                self._adopt(pod, claims)
                return Requeue()
            case Step.RELEASE if pod.spec.node_name:
                elsewhere = [c.holding for c in claims if c.holding and c.state(pod) is ClaimState.MISPLACED]
                await self._placement.release_misplaced(pod, elsewhere)
                return AT_ONCE
            case Step.RELEASE:
                return await self._release(pod, claims)
        return None

    def _half_offered(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether some claims are offered and others are not, so that nobody can follow: the others' write failed,
        or they were cleared. The scheduler clears one claim only."""
        pending = any(claim.state(pod) is ClaimState.PENDING for claim in claims)
        return pending and not pod.spec.node_name

    def _bound_to_declined(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether a driver has declined the offer and the pod was bound all the same, by a late binding: the
        scheduler, which otherwise takes back what was declined, looks at it no more."""
        return bool(pod.spec.node_name) and any(
            claim.offer_ended for claim in claims if claim.state(pod) is ClaimState.OFFERED
        )

    async def _put_right(self, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """The bound pod may be using these, whatever is wrong with its others: their record must not be
        missing when another controller leads. Returns what is next if the API server refuses it."""
        step = next_step((claim.state(pod) for claim in claims), bound=True) if pod.spec.node_name else None
        if step is Step.ADOPT:
            self._adopt(pod, claims)
        return await self._placement.put_right(pod, claims) if step is Step.WRITE else None

    async def _mark_in_use(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Others wait for what the bound pod uses: their schedulers need not try them."""
        for claim in claims if pod.spec.node_name else ():
            mirror, topic = claim.mirror, ("claim", pod.metadata.namespace, claim.name)
            if mirror is None or claim.holding is None or not in_use.can_say(mirror):
                continue
            if claim.state(pod) is ClaimState.ALLOCATED and self._pods.tried_in_vain(topic):
                await self._records.mark_in_use(mirror, claim.holding, pod)

    def _ask_to_mark(self, pod: Pod) -> None:
        """The pod waits for claims in use: pods that use them, and are bound, see to it that this is said."""
        self._pods.attempt(pod).tried = True
        for key in named_claims(pod):
            mirror, holding = self._state.cluster.mirror(key), self._state.ledger.of_claim(*key)
            if mirror is None or holding is None or not in_use.can_say(mirror):
                continue
            for user in holding.pods.values():
                if user.uid != pod.metadata.uid:
                    self._pods.look_again((user.namespace, user.name))

    async def _stuck(self, pod: Pod, problem: Problem) -> Result:
        self._state.nominations.end(pod.metadata.uid)
        if not pod.spec.node_name:
            await self._placement.release_all(pod)
            if problem.fails_pod:
                return await self._placement.fail(pod, problem.code, problem.message, unchanged=True)
        if problem.code in _USED_BY_OTHERS:
            self._ask_to_mark(pod)
        left = self._until_reported(pod, problem)
        if left == 0:
            problem = replace(problem, transient=False)
        line = KeptOut(problem.message) if problem.transient else KeptOut((problem.code, *problem.topics))
        return wait(Blocked(problem, line), after=left or None)

    def _until_reported(self, pod: Pod, problem: Problem) -> float | None:
        """In how many seconds the user has to know of what should end by itself; None if never."""
        if not problem.reported_after:
            return None
        return max(0.0, problem.reported_after - self._pods.attempt(pod).lasts_for(problem.message, now()))

    def _settled(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Everything is recorded; report it once the binding is there."""
        if pod.spec.node_name and all(claim.state(pod) is ClaimState.ALLOCATED for claim in claims):
            holdings = {c.entry: c.holding for c in claims if c.holding is not None}
            drivers = {entry: h.driver for entry, h in holdings.items() if not h.standalone}
            standalone = len(drivers) < len(holdings)
            self._sessions.give_up(reference(pod))
            self._state.nominations.end(pod.metadata.uid)
            self._reporter.bound(pod, drivers, self._pods.settled(pod), standalone=standalone)

    async def _unplaced(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """The pod has all its claims and no node: its scheduler has reasons of its own, which may last for ever.
        After a while others may have what is allocated, and the pod is offered other nodes."""
        if pod.spec.node_name or any(claim.state(pod) is not ClaimState.ALLOCATED for claim in claims):
            return None
        attempt = self._pods.attempt(pod)
        unplaced = [claim.holding for claim in claims if claim.holding is not None]
        if (left := attempt.patience(now())) > 0:
            if (early := attempt.until_late(now())) > 0:
                return Requeue(early)
            session = attempt.standalone.session
            if not any(holding.standalone for holding in unplaced):
                self._reporter.unbound(pod, attempt)
            elif session is not None and session.selection is not None:  # else an earlier leader selected
                self._reporter.unbound(pod, attempt, session.selection.node)
            return Requeue(left)
        result = await self._release(pod, claims, unplaced)
        attempt.give_up_waiting()
        self._state.nominations.end(pod.metadata.uid)
        await self._placement.have_retried(pod, (node for one in unplaced for node in one.nodes or ()))
        return result

    async def _unchosen(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """The scheduler has not reserved the offer. It takes back what it does not want, but not where its other
        filters reject the pod everywhere, for as long as they do: what a driver declined stays, too. After a while
        the pod is offered other nodes, also such where others have to be evicted."""
        attempt = self._pods.attempt(pod)
        if any(claim.is_reserved(pod) for claim in claims):
            attempt.unchosen_since = None
            return None
        ended = any(claim.offer_ended for claim in claims)
        if (left := attempt.until_taken_back(now(), ended=ended)) > 0:
            return Requeue(left)
        nodes = {node for claim in claims for node in claim.offered_nodes}
        result = await self._release(pod, claims)
        attempt.refuse(*nodes)
        attempt.give_up_waiting()
        await self._placement.have_retried(pod, nodes)
        return result

    def _adopt(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        for claim in claims:
            if claim.mirror is not None and claim.state(pod) is ClaimState.UNKNOWN:
                adopt(self._state, claim.mirror, standalone=True)

    async def _release(self, pod: Pod, claims: Sequence[PodClaim], unplaced: Sequence[Holding] = ()) -> Requeue:
        """Release what the pod holds. It is not offered again soon where its claims were cleared, nor where it
        has them `unplaced`."""
        cleared = [c.holding for c in claims if c.state(pod) is ClaimState.CLEARED and c.holding]
        await self._placement.check_current(pod)  # meanwhile another pod may put right what was cleared
        attempt = self._pods.attempt(pod)
        if refused := [*cleared, *unplaced]:
            chosen = {h.node for h in refused if isinstance(h.nodes, tuple)}
            nodes = frozenset(chosen or attempt.outcome.viable)
            attempt.refuse(*nodes)
            if cleared:
                attempt.taken_back(nodes, now())
            self._reporter.refused(pod, nodes)
        attempt.offered = ()
        for claim in claims:
            unheld = claim.state(pod) in (ClaimState.UNKNOWN, ClaimState.OFFERED)
            if claim.mirror is not None and (unheld or claim.is_given_up(pod)):
                await self._records.clear(claim.mirror, claim.holding)  # not if it was reserved again meanwhile
        await self._placement.release_all(pod, cleared)
        return AT_ONCE


def _misplaced(pod: Pod, claims: Sequence[PodClaim]) -> Problem | None:
    """Whether somebody put the pod on a node where one of its claims is not, and others use that: when they have
    left it, it is allocated anew."""
    node = pod.spec.node_name
    for held in (claim.holding for claim in claims if claim.holding is not None):
        if node and not held.may_run_on(node):
            message = (
                f"node {node} does not have claim {held.path}: it is {where(held.nodes)}, and other pods use it "
                "there. Delete this pod and let a scheduler place it, or wait until they have ended"
            )
            return Problem(reasons.NOTHING_VIABLE, message, (("claim", held.namespace, held.claim),))
    return None
