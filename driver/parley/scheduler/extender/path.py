"""Answers a kube-scheduler's extender calls, and reconciles its pods in between.

Filter, prioritize and preempt answer from memory at once. What the cache has of a pod counts, not what the caller
says of it. A pod that passes filter is assumed (`assumed`). If filter rejects it, its user is told later; once the
answer would differ, the scheduler is made to try the pod again.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from parley.api import reasons
from parley.api.builtin import DeviceClass, Pod
from parley.api.names import EXTENDER_SAYS
from parley.api.resources import DEVICE_CLASSES
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.objects.pod import arrival, is_done, reference
from parley.control.state import State
from parley.control.telemetry.metrics import Metrics
from parley.kube.cache import Key
from parley.negotiation.states import ClaimState
from parley.scheduler.candidates import common_nodes
from parley.scheduler.extender import wire
from parley.scheduler.extender.assumed import AssumedPods
from parley.scheduler.extender.binding import Binder
from parley.scheduler.extender.claim_order import ClaimOrder
from parley.scheduler.extender.filtering import (
    ASSUMED,
    CandidateFilter,
    FilterResult,
    dra_only_result,
    pod_ahead_result,
)
from parley.scheduler.extender.nodesets import Nodes, NodeSets
from parley.scheduler.extender.notifications import Notifications
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.preempting import Preemptors
from parley.scheduler.extender.rejections import Rejection, Rejections
from parley.scheduler.extender.scope import DEVICE_CLASSES_CHANGED, DraResources, Scope
from parley.scheduler.extender.unknown import UnknownPods
from parley.scheduler.negotiator import Negotiator
from parley.scheduler.placement import Placement
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import AT_ONCE, Result, Wait
from parley.sdk import PodReference
from parley.sdk.checks import DriverFault

BEST_SCORE = 10
"""The highest score that an extender may give a node (k8s.io/kube-scheduler/extender/v1, MaxExtenderPriority)."""

_SOON = f"{EXTENDER_SAYS}an object that the pod needs is changing right now; the pod is tried again after that"


class ExtenderPath:
    """Negotiates for the pods in `scope`. The `negotiator` asks standalone drivers in the background."""

    def __init__(
        self,
        state: State,
        placement: Placement,
        pods: Pods,
        scope: Scope,
        posting: Posting,
        negotiator: Negotiator,
        metrics: Metrics,
    ) -> None:
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._pods = pods
        self._scope = scope
        self._dra_resources = DraResources(state.cluster)
        self._sets = NodeSets()
        self._assumed = AssumedPods(state.ledger, lambda: pods.wake(ASSUMED))
        self._notifications = Notifications()
        self._posting = posting
        self._filtering = CandidateFilter(state, pods, self._assumed, negotiator.candidates)
        self._placement = placement
        self._binder = Binder(state, placement, pods, self._assumed, self._notifications, self._posting, scope)
        self._negotiator = negotiator
        self._preemptors = Preemptors(state, pods, self._filtering, negotiator)
        preemptors = self._preemptors
        self._rejections = Rejections(
            pods,
            self._posting,
            self._release,
            self._ask_standalone,
            preemptors.make_room,
            preemptors.node_for_evictions,
            self._reject_preemption,
        )
        self._claim_order = ClaimOrder(state, pods, self._rejections)
        self._unknown = UnknownPods(state.cluster, self._forget_unknown)
        self._monotonic = metrics.monotonic
        self._verbs: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
            "bind": self._bind,
        }
        self._seconds = {verb: metrics.extender_seconds.labels(verb) for verb in self._verbs}
        state.cluster.informers.observe(DEVICE_CLASSES, self._device_class_changed)

    @property
    def verbs(self) -> Sequence[str]:
        """The names of the calls that can be answered."""
        return tuple(self._verbs)

    def owns(self, pod: Pod) -> bool:
        """Whether this path negotiates for the pod: if it is in scope, until it is bound."""
        return not pod.spec.node_name and self._scope.owns(pod)

    def pod_terminal(self, pod: Pod) -> None:
        """Do nothing: the scheduler asks no more about the pod."""

    async def answer(self, verb: str, body: bytes) -> bytes:
        """The response to a scheduler's call with that body. Raises wire.BadCall, and LeaseLost: a process that
        was suspended knows nothing of what happened since, nor would the present leader know of its answers."""
        self._posting.check_lease()
        started = self._monotonic()
        try:
            return await self._verbs[verb](body)
        finally:
            self._seconds[verb].observe(self._monotonic() - started)

    def _device_class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        self._dra_resources.changed(old, new)
        self._pods.wake(DEVICE_CLASSES_CHANGED)

    async def _filter(self, body: bytes) -> bytes:
        asked = wire.proposed(body)
        nodes = asked.nodes()
        pod = self._cluster.pod_with_uid(asked.user) or asked.pod()
        if why := self._scope.why_not_placed(pod):
            return wire.passed((), nodes, f"{EXTENDER_SAYS}{why}")
        known = self._rejections.filter_called(reference(pod))
        if known is not None and known.still_holds(self._sets.of(nodes), self._pods):
            return known.answer
        if why := self._unknown.asked(pod):
            return wire.failed(f"{EXTENDER_SAYS}{why}")
        having = self._dra_resources.nodes_with(pod, nodes)
        if not having:
            return self._reject(pod, nodes, dra_only_result(self._dra_resources.of(pod)))
        if not pod.spec.resource_claims:
            return self._claimless(pod, asked, nodes, having)
        if self._binder.node_of(reference(pod)):
            return self._being_bound(pod, nodes)
        attempt = self._pods.attempt(pod)
        if attempt.failures.left(now()):
            return self._paused(pod, nodes, attempt.failures.until)
        attempt.extender.filter_called()
        try:
            result = self._filtering.filter(pod, having, has_preferences=asked.has_preferences())
        except DriverFault as fault:
            return self._driver_failed(pod, nodes, fault)
        if result.viable and (ahead := self._claim_order.pod_ahead(pod)) is not None:
            return self._reject(pod, nodes, pod_ahead_result(ahead.claim), expires_at=ahead.until)
        if not result.viable:
            self._preemptors.add_proposed(pod, self._sets.of(nodes))
            return self._reject(pod, nodes, result)
        attempt.extender.filter_answered(result.viable)
        if result.assumed is not None:
            self._assumed.put(result.assumed)
        self._rejections.drop(reference(pod))
        if not self._unknown.is_another(pod):
            self._pods.leave_line(_key(pod))
        return wire.passed(result.viable, (), "")

    def _claimless(self, pod: Pod, asked: wire.Proposed, nodes: Sequence[str], having: Sequence[str]) -> bytes:
        """The answer for a pod without claims, which must not use room that is reserved for users of claims."""
        result = self._filtering.claimless(pod, having)
        if not result.viable:
            return self._reject(pod, nodes, result)
        if self._rejections.is_rejected(reference(pod)):
            self._rejections.drop(reference(pod))
            self._pods.leave_line(_key(pod))
        everywhere = len(result.viable) == len(nodes)
        return wire.all_pass(asked.names_as_sent) if everywhere else wire.passed(result.viable, (), "")

    def _reject(
        self, pod: Pod, names: Sequence[str], result: FilterResult, *, expires_at: float | None = None
    ) -> bytes:
        assert result.blocked is not None
        problem, line = result.blocked.problem, result.blocked.line
        self._pods.attempt(pod).extender.filter_answered(())
        self._assumed.drop(reference(pod))
        nodes = self._sets.of(names)
        # Pods with other nodes wait in other lines: they may get what the first pod of this line can't.
        line = (line, nodes, frozenset(self._dra_resources.of(pod))) if result.by_nodes else line
        if not result.standalone and not self._unknown.is_another(pod):
            self._pods.line_up(_key(pod), line, problem.topics, result.blocked.helps)
        shown = pod.spec.resource_claims and problem.code != reasons.CLAIM_NOT_FOUND
        reported_in = "podscheduling" if shown else "events"
        answer = self._sets.refusal(nodes, _message(problem, reported_in))
        revision = self._pods.revision(problem.topics)
        flags = result.must_release, result.standalone, result.by_nodes
        rejection = Rejection(nodes, answer, problem, revision, *flags, line, expires_at=expires_at)
        self._rejections.add(pod, rejection)
        return answer

    def _being_bound(self, pod: Pod, nodes: Sequence[str]) -> bytes:
        """Reject a pod whose bind still goes on after the scheduler gave it up: another bind would fail."""
        problem = Problem(reasons.BINDING, "the pod is being bound", (), transient=True)
        return self._postpone(pod, nodes, problem, 0.0)

    def _paused(self, pod: Pod, nodes: Sequence[str], until: float) -> bytes:
        """Reject a pod that pauses after failures of drivers or the API server, as its PodScheduling reports."""
        problem = Problem(reasons.ALLOCATION_FAILED, "it is tried again after a pause", ())
        return self._postpone(pod, nodes, problem, until)

    def _postpone(
        self, pod: Pod, names: Sequence[str], problem: Problem, until: float, *, reported: bool = True
    ) -> bytes:
        nodes = self._sets.of(names)
        answer = self._sets.refusal(nodes, _message(problem))
        known = problem if reported else None
        self._rejections.add(pod, Rejection(nodes, answer, problem, (), until=until, reported=known))
        return answer

    def _driver_failed(self, pod: Pod, nodes: Sequence[str], fault: DriverFault) -> bytes:
        """Begin a growing pause after a driver's fault, which an event reports."""
        self._assumed.drop(reference(pod))
        failures = self._pods.attempt(pod).failures
        failures.begin(now())
        problem = Problem(reasons.DRIVER_FAILED, str(fault), ())
        return self._postpone(pod, nodes, problem, failures.until, reported=False)

    async def _prioritize(self, body: bytes) -> bytes:
        asked = wire.proposed(body)
        assumed = self._assumed.of(asked.user)
        if assumed is None or not assumed.demand.has_preferences:
            return wire.scores({})
        try:
            preferences = assumed.demand.scores(asked.nodes(), {})
        except DriverFault:
            return wire.scores({})  # filter was answered: any of its nodes will do
        most = sum(assumed.demand.weights.values())
        return wire.scores(
            {node: round(BEST_SCORE * score / most) for node, score in preferences.items() if score}
        )

    async def _preempt(self, body: bytes) -> bytes:
        sent, victims = wire.preemption(body)
        pod = self._cluster.pod_with_uid(reference(sent)) or sent
        if self._scope.why_not_placed(pod) or self._unknown.asked(pod):
            return wire.victims({})
        nodes = self._dra_resources.nodes_with(pod, list(victims))
        viable = set(self._viable(pod, nodes))
        answered = self._rejections.preempt_called(reference(pod))
        if pod.spec.resource_claims or len(viable) < len(nodes):
            self._preemptors.set_preemptible(pod, nodes)
            if not viable and answered:
                self._rejections.require_release(pod)
            elif not viable:
                self._reject_preemption(pod)
        return wire.victims({node: victims[node] for node in nodes if node in viable})

    def _viable(self, pod: Pod, nodes: Sequence[str]) -> Collection[str]:
        """The nodes on which evicting pods would help the pod."""
        if self._binder.node_of(reference(pod)) or self._claim_order.pod_ahead(pod):
            return ()
        outdated = sorted(self._rejections.outdated(reference(pod)))
        if outdated and not self._rejected(pod, outdated):
            return ()  # one of these nodes is viable now: the scheduler is made to try the pod again
        if pod.spec.resource_claims:
            return self._filtering.viable(pod, nodes)
        return self._filtering.unreserved(nodes)

    def _reject_preemption(self, pod: Pod) -> None:
        """Reject a pod that the scheduler's own filters reject everywhere, until evictions would help it."""
        nodes = sorted(self._pods.attempt(pod).extender.preemptible)
        if not nodes:
            return
        if self._binder.node_of(reference(pod)):
            self._being_bound(pod, nodes)
        elif (ahead := self._claim_order.pod_ahead(pod)) is not None:
            self._reject(pod, nodes, pod_ahead_result(ahead.claim), expires_at=ahead.until)
        elif not self._rejected(pod, nodes):
            return
        self._rejections.mark_preemption(reference(pod))

    def _rejected(self, pod: Pod, nodes: Sequence[str]) -> bool:
        """Whether the pod is rejected on all of the nodes; if so, the rejection is kept."""
        has_claims, filtering = bool(pod.spec.resource_claims), self._filtering
        try:
            result = filtering.filter(pod, nodes) if has_claims else filtering.claimless(pod, nodes)
        except DriverFault as fault:
            self._driver_failed(pod, nodes, fault)
            return True
        if result.blocked is not None:
            self._reject(pod, nodes, result)
        return result.blocked is not None

    async def _bind(self, body: bytes) -> bytes:
        asked = wire.bind(body)
        pod = PodReference(asked.pod_namespace, asked.pod_name, asked.pod_uid)
        if (attempt := self._pods.existing_attempt(pod)) is not None:
            attempt.extender.selected = ""
        why_not = await self._binder.bind(pod, asked.node)
        if not why_not:
            self._rejections.drop(pod)
        return wire.bound(why_not)

    def pod_updated(self, pod: Pod) -> None:
        """Event handler: notify a bind that may wait for a change of the pod's status."""
        self._notifications.notify(_key(pod))
        if self._unknown.was_forgotten(pod) and not pod.spec.node_name:
            self._rejections.expect_call(pod)
            self._pods.requeue(_key(pod))

    def is_binding(self, pod: Pod) -> bool:
        """Whether the pod is being bound; if so, its bind is notified."""
        if not self._binder.node_of(reference(pod)):
            return False
        self._notifications.notify(_key(pod))
        return True

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Reconcile the unbound pod, about which something may have changed."""
        failing = next((claim.problem for claim in claims if claim.problem and claim.problem.fails_pod), None)
        if failing is not None and not pod.spec.node_name:
            await self._release(reference(pod))
            return await self._placement.fail(pod, failing.code, failing.message, unchanged=True)
        if (failed := await self._negotiator.give_up_elsewhere(key, pod, claims)) is not None:
            return failed
        if await self._release_if_overdue(key, pod, claims):
            return AT_ONCE
        return await self._rejections.reconcile(key, pod, claims)

    async def _release_if_overdue(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Release what the pod holds if its scheduler has not bound it in time, and may find no node for it any
        more. Returns whether it did. Raises Busy if the pod is bound by now, and what a client raises."""
        user, asked = reference(pod), [claim for claim in claims if claim.standalone and claim.problem is None]
        if not self._ledger.of_pod(user) or any(claim.state(pod) is ClaimState.PENDING for claim in asked):
            return False
        attempt = self._pods.attempt(pod)
        if (left := attempt.binding_seconds_left(now())) > 0:
            self._pods.requeue(key, left)
            return False
        await self._release(user)
        attempt.not_bound_in_time()
        return True

    async def _release(self, pod: PodReference) -> None:
        await self._binder.release(pod, doubtful=True)

    async def _ask_standalone(self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: Nodes) -> Result:
        """Negotiate with standalone drivers. Pods with other nodes wait in other lines, as in `_reject`."""
        preemptible = self._pods.attempt(pod).extender.preemptible - nodes
        proposed = self._filtering.nodes(pod, claims, common_nodes(claims), sorted(nodes), preemptible)
        result = await self._negotiator.negotiate(key, pod, claims, proposed)
        return replace(result, line=(result.line, nodes, preemptible)) if isinstance(result, Wait) else result

    async def void_bindings(self, pod: PodReference) -> None:
        """Void earlier bindings, including those that an earlier leader posted."""
        await self._posting.void_bindings(pod, doubtful=True)

    def resume(self) -> None:
        """Expect calls about waiting pods, which an earlier leader may have rejected. A pod without claims was
        rejected if it had no room beside what is reserved; nothing else reconciles it."""
        owned = [pod for pod in self._cluster.pods() if self.owns(pod) and not is_done(pod)]
        for pod in sorted(owned, key=arrival):
            if pod.spec.resource_claims:
                self._pods.attempt(pod)  # its place is by age, not by when it is asked about
                self._rejections.expect_call(pod)
            elif self._ledger.reserves and not pod.spec.node_name:
                self._rejections.expect_call(pod)
                self._pods.requeue(_key(pod))

    @property
    def entries(self) -> int:
        """The number of entries about pods in memory."""
        answered = len(self._rejections) + len(self._assumed) + len(self._unknown)
        return answered + len(self._pods) + len(self._posting)

    def _forget_unknown(self, pod: PodReference) -> None:
        self._pods.forget_unknown(pod)
        self.pod_gone(pod)

    def pod_gone(self, pod: PodReference) -> None:
        """Event handler: the pod's object is gone. Forget it."""
        self._rejections.drop(pod)
        self._assumed.drop(pod)
        self._posting.forget(pod)
        self._notifications.notify((pod.namespace, pod.name))


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name


def _message(problem: Problem, reported_in: str = "podscheduling") -> str:
    """The message for the pod's condition, which the scheduler writes: the same for all pods (see NodeSets), and
    as long as the code is the same, since another message changes the pod, which makes the scheduler try it
    again."""
    if problem.transient:
        return _SOON
    if problem.code == reasons.OTHER_SCHEDULER:
        return f"{EXTENDER_SAYS}{problem.message}"
    return f"{EXTENDER_SAYS}{problem.code}, see the pod's {reported_in}"
