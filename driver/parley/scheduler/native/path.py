"""The native path, for pods of any unmodified scheduler: each reconciliation takes the one next step.

Each decision is made at once from caches and ledger: nothing is awaited between reading them and reserving.
"""

from collections.abc import Sequence
from dataclasses import replace

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.caches.indexes import named_claims
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.decision.decide import Blocked
from parley.control.holding import Holding
from parley.control.objects import in_use
from parley.control.objects.pod import is_terminal, reference
from parley.control.records import Records
from parley.control.restoring import adopt
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.queue import Requeue
from parley.negotiation.nowhere import where
from parley.negotiation.states import ClaimState, Step, next_step
from parley.scheduler.candidates import have_no_common_node
from parley.scheduler.native.claim_order import pod_ahead_problem
from parley.scheduler.negotiator import Negotiator
from parley.scheduler.placement import Placement
from parley.scheduler.pods import KeptOut, Pods, now
from parley.scheduler.result import AT_ONCE, Result, Wait, wait
from parley.scheduler.standalone import StandaloneSessions
from parley.sdk import PodReference

_USED_BY_OTHERS = frozenset({reasons.CLAIM_IN_USE, reasons.CLAIM_BEING_DELETED, reasons.CLAIM_FAILED})
"""Problems of a pod with an exclusive claim that its scheduler sees allocated, and so may try again and again."""


class NativePath:
    """Negotiates for pods that no other path owns, and repairs the records of bound pods of all paths."""

    def __init__(
        self,
        state: State,
        records: Records,
        pods: Pods,
        sessions: StandaloneSessions,
        placement: Placement,
        negotiator: Negotiator,
    ) -> None:
        self._state = state
        self._records = records
        self._reporter = pods.reporter
        self._pods = pods
        self._sessions = sessions
        self._placement = placement
        self._negotiator = negotiator

    def owns(self, pod: Pod) -> bool:  # noqa: ARG002 - a SchedulingPath's
        """Always: this path comes last, and takes the pods that no other path owns."""
        return True

    def is_binding(self, pod: Pod) -> bool:  # noqa: ARG002 - a SchedulingPath's
        """Never: schedulers bind the pods of this path."""
        return False

    async def void_bindings(self, pod: PodReference) -> None:
        """Do nothing: this path posts no bindings."""

    def resume(self) -> None:
        """Resume the allocations that an earlier leader asked standalone drivers for."""
        cluster = self._state.cluster
        for scheduling in cluster.schedulings():
            pod = cluster.pod((scheduling.metadata.namespace, scheduling.metadata.name))
            if pod is not None and scheduling.spec.selected_node and not is_terminal(pod):
                self._sessions.resume(pod, scheduling)

    def pod_updated(self, pod: Pod) -> None:
        """Do nothing: a relevant change adds the pod's key to the work queue."""

    def pod_terminal(self, pod: Pod) -> None:
        """End the pod's session with standalone drivers."""
        self._sessions.end(pod)

    def pod_gone(self, pod: PodReference) -> None:
        """Stop waiting for standalone drivers to allocate for the pod."""
        self._sessions.give_up(pod)

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Take the next step for the pod."""
        if not claims or pod.spec.scheduling_gates:
            self._pods.leave_line(key)  # it may have waited on another path before somebody else bound it
            return None
        return await self._step(key, pod, claims)

    async def _step(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        problem = problem or pod_ahead_problem(self._pods, self._state, pod, claims)
        if problem is not None:
            refused = await self._restore_records(pod, [claim for claim in claims if claim.problem is None])
            return refused or await self._blocked(pod, problem)
        if (failed := await self._negotiator.give_up_elsewhere(key, pod, claims)) is not None:
            return failed
        step = next_step((claim.state(pod) for claim in claims), bound=bool(pod.spec.node_name))
        match step:
            case Step.NOTHING if stale := [c for c in claims if c.claim and c.state(pod) is ClaimState.STALE]:
                topics = [("claim", pod.metadata.namespace, claim.name) for claim in stale]
                return Wait("a mirror was written and is not in the cache yet", topics, keeps_place=True)
            case Step.NOTHING if (misplaced := _misplaced(pod, claims)) is not None:
                return wait(Blocked(misplaced, KeptOut(misplaced.topics)))
            case Step.NOTHING:
                self._pods.leave_line(key)
                self._report_if_bound(pod, claims)
                await self._mark_in_use(pod, claims)
                return await self._await_binding(pod, claims)
            case Step.NEGOTIATE:
                return await self._negotiator.negotiate(key, pod, claims)
            case Step.FOLLOW_OFFER if self._half_offered(pod, claims) or self._bound_to_declined(pod, claims):
                self._pods.attempt(pod).offer_ended()
                return await self._release(pod, claims)
            case Step.FOLLOW_OFFER:
                return await self._placement.follow_offer(key, pod, claims) or await self._withdraw_unchosen(
                    pod, claims
                )
            case Step.WRITE if not pod.spec.node_name and have_no_common_node(claims):
                return await self._release(pod, claims)
            case Step.WRITE:
                return await self._placement.rewrite(pod, claims)
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
        """Whether only some of the claims are offered, so that no scheduler can take up the offer: the write of
        the others failed, or they were cleared. The scheduler clears one claim only."""
        pending = any(claim.state(pod) is ClaimState.PENDING for claim in claims)
        return pending and not pod.spec.node_name

    def _bound_to_declined(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether the offer was declined and the pod was bound all the same, by a late binding: the scheduler,
        which otherwise clears a declined offer, does not handle the pod any more."""
        return bool(pod.spec.node_name) and any(
            claim.offer_ended for claim in claims if claim.state(pod) is ClaimState.OFFERED
        )

    async def _restore_records(self, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Record these claims of a bound pod, which may be using them whatever is wrong with its others: the next
        leader needs the records. Returns what is next if the API server refuses them."""
        step = next_step((claim.state(pod) for claim in claims), bound=True) if pod.spec.node_name else None
        if step is Step.ADOPT:
            self._adopt(pod, claims)
        return await self._placement.rewrite(pod, claims) if step is Step.WRITE else None

    async def _mark_in_use(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Mark the bound pod's claims as in use if others wait for them, so that schedulers stop trying these."""
        for claim in claims if pod.spec.node_name else ():
            mirror, topic = claim.mirror, ("claim", pod.metadata.namespace, claim.name)
            if mirror is None or claim.holding is None or not in_use.can_show_in_use(mirror):
                continue
            if claim.state(pod) is ClaimState.ALLOCATED and self._pods.keeps_out_retried(topic):
                await self._records.mark_in_use(mirror, claim.holding, pod)

    def _requeue_users(self, pod: Pod) -> None:
        """Requeue the users of the claims that the pod waits for: their reconciliation marks these as in use."""
        self._pods.attempt(pod).retried_by_scheduler = True
        for key in named_claims(pod):
            mirror, holding = self._state.cluster.mirror(key), self._state.ledger.of_claim(*key)
            if mirror is None or holding is None or not in_use.can_show_in_use(mirror):
                continue
            for user in holding.pods.values():
                if user.uid != pod.metadata.uid:
                    self._pods.requeue((user.namespace, user.name))

    async def _blocked(self, pod: Pod, problem: Problem) -> Result:
        if not problem.keeps_nomination:
            self._state.nominations.end(pod.metadata.uid)
        if pod.spec.node_name:  # its containers may be using what it holds
            self._sessions.end(pod)
        else:
            await self._placement.release_all(pod)
            if problem.fails_pod:
                return await self._placement.fail(pod, problem.code, problem.message, unchanged=True)
        if problem.code in _USED_BY_OTHERS:
            self._requeue_users(pod)
        left = self._seconds_until_reported(pod, problem)
        if left == 0:
            problem = replace(problem, transient=False)
        why = problem.message if problem.transient else (problem.code, *problem.topics)
        line = ("awaits a successor", why) if problem.awaits_successor else KeptOut(why)
        return wait(Blocked(problem, line), after=left or None)

    def _seconds_until_reported(self, pod: Pod, problem: Problem) -> float | None:
        """In how many seconds a transient problem has to be reported to the user; None if never."""
        if not problem.reported_after:
            return None
        return max(0.0, problem.reported_after - self._pods.attempt(pod).transient_for(problem.message, now()))

    def _report_if_bound(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Report the pod, whose claims are all recorded, and drop its attempt once it is bound."""
        if pod.spec.node_name and all(claim.state(pod) is ClaimState.ALLOCATED for claim in claims):
            holdings = {c.entry: c.holding for c in claims if c.holding is not None}
            drivers = {entry: h.driver for entry, h in holdings.items() if not h.standalone}
            standalone = len(drivers) < len(holdings)
            self._sessions.give_up(reference(pod))
            self._state.nominations.end(pod.metadata.uid)
            self._reporter.bound(pod, drivers, self._pods.pop_attempt(pod), standalone=standalone)

    async def _await_binding(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Wait for the scheduler to bind the pod, which has all its claims. It may have reasons of its own not to,
        for ever: after a while the claims are released for others, and the pod is offered other nodes."""
        if pod.spec.node_name or any(claim.state(pod) is not ClaimState.ALLOCATED for claim in claims):
            return None
        attempt = self._pods.attempt(pod)
        unplaced = [claim.holding for claim in claims if claim.holding is not None]
        if (left := attempt.binding_seconds_left(now())) > 0:
            if (early := attempt.seconds_until_late(now())) > 0:
                return Requeue(early)
            session = attempt.standalone.session
            if not any(holding.standalone for holding in unplaced):
                self._reporter.binding_late(pod, attempt)
            elif session is not None and session.selection is not None:  # else an earlier leader selected
                self._reporter.binding_late(pod, attempt, session.selection.node)
            return Requeue(left)
        result = await self._release(pod, claims, unplaced)
        attempt.not_bound_in_time()
        self._state.nominations.end(pod.metadata.uid)
        await self._placement.nominate_briefly(pod, (node for one in unplaced for node in one.nodes or ()))
        return result

    async def _withdraw_unchosen(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Withdraw an offer that the scheduler neither reserves nor clears in time. It does neither while its
        other filters reject the pod on every node, also if a driver has declined. Then the pod is offered other
        nodes, including such where others have to be evicted."""
        attempt = self._pods.attempt(pod)
        if any(claim.is_reserved(pod) for claim in claims):
            attempt.unchosen_since = None
            return None
        ended = any(claim.offer_ended for claim in claims)
        if (left := attempt.offer_seconds_left(now(), ended=ended)) > 0:
            return Requeue(left)
        nodes = {node for claim in claims for node in claim.offered_nodes}
        result = await self._release(pod, claims)
        attempt.refuse(*nodes)
        attempt.not_bound_in_time()
        await self._placement.nominate_briefly(pod, nodes)
        return result

    def _adopt(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        for claim in claims:
            if claim.mirror is not None and claim.state(pod) is ClaimState.UNKNOWN:
                adopt(self._state, claim.mirror, standalone=True)

    async def _release(self, pod: Pod, claims: Sequence[PodClaim], unplaced: Sequence[Holding] = ()) -> Requeue:
        """Release what the pod holds. Nodes where its claims were cleared, or where it was not bound in time with
        the `unplaced` ones, count as refused."""
        cleared = [c.holding for c in claims if c.state(pod) is ClaimState.CLEARED and c.holding]
        await self._placement.check_current(pod)  # meanwhile another pod may restore what was cleared
        attempt = self._pods.attempt(pod)
        if refused := [*cleared, *unplaced]:
            chosen = {h.node for h in refused if isinstance(h.nodes, tuple)}
            nodes = frozenset(chosen or attempt.outcome.viable)
            attempt.refuse(*nodes)
            if cleared:
                attempt.allocation_cleared(nodes, now())
            self._reporter.refused(pod, nodes)
        attempt.offered = ()
        for claim in claims:
            unheld = claim.state(pod) in (ClaimState.UNKNOWN, ClaimState.OFFERED)
            if claim.mirror is not None and (unheld or claim.is_node_given_up(pod)):
                await self._records.clear(claim.mirror, claim.holding)  # not if it was reserved again meanwhile
        await self._placement.release_all(pod, cleared)
        return AT_ONCE


def _misplaced(pod: Pod, claims: Sequence[PodClaim]) -> Problem | None:
    """The problem of a pod that somebody bound to a node where one of its claims can't be used, while other pods
    use that claim: it is allocated anew when they have ended. None if there is no such claim."""
    node = pod.spec.node_name
    for held in (claim.holding for claim in claims if claim.holding is not None):
        if node and not held.may_run_on(node):
            message = (
                f"node {node} does not have claim {held.path}: it is {where(held.nodes)}, and other pods use it "
                "there. Delete this pod and let a scheduler place it, or wait until they have ended"
            )
            return Problem(reasons.NOTHING_VIABLE, message, (("claim", held.namespace, held.claim),))
    return None
