"""Answers a kube-scheduler's calls, and follows what happens to its pods in between.

Filter, prioritize and preempt answer from memory at once. A pod that passes filter is assumed (`assumed`); what
filter refuses is reported to the pod's user afterwards; once that has changed, the scheduler is made to ask again.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace

from parley.api import reasons
from parley.api.builtin import DeviceClass, Pod
from parley.api.names import EXTENDER_SAYS
from parley.api.resources import DEVICE_CLASSES
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.decision.decide import Blocked
from parley.control.objects.pod import arrival, over, reference
from parley.control.state import State
from parley.control.telemetry.metrics import Metrics
from parley.kube.cache import Key
from parley.negotiation.states import ClaimState
from parley.scheduler.candidates import common_nodes
from parley.scheduler.extender import wire
from parley.scheduler.extender.assumed import AssumedPods
from parley.scheduler.extender.binding import Binder
from parley.scheduler.extender.filtering import ASSUMED, CandidateFilter, FilterResult, not_yet
from parley.scheduler.extender.nodesets import Nodes, NodeSets
from parley.scheduler.extender.notifications import Notifications
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.preempting import Preemptors
from parley.scheduler.extender.rejections import Rejection, Rejections
from parley.scheduler.extender.scope import DEVICE_CLASSES_CHANGED, Backed, Scope, unbacked
from parley.scheduler.extender.turns import Turns
from parley.scheduler.extender.unknown import UnknownPods
from parley.scheduler.negotiator import Negotiator
from parley.scheduler.placement import Placement
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import AT_ONCE, Result, Wait
from parley.sdk import PodReference
from parley.sdk.checks import DriverFault

BEST_SCORE = 10
"""What an extender may give a node at most (k8s.io/kube-scheduler/extender/v1, MaxExtenderPriority)."""

_SOON = f"{EXTENDER_SAYS}an object that the pod needs is changing right now; the pod is tried again after that"


class ExtenderPath:
    """Negotiates for the pods in `scope`. The `negotiator` asks standalone drivers for them, in the background."""

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
        self._backed = Backed()
        self._sets = NodeSets()
        self._assumed = AssumedPods(state.ledger, lambda: pods.wake(ASSUMED))
        self._notifications = Notifications()
        self._posting = posting
        self._filtering = CandidateFilter(state, pods, self._assumed, negotiator.candidates)
        self._placement = placement
        self._binder = Binder(state, placement, pods, self._assumed, self._notifications, self._posting)
        self._negotiator = negotiator
        self._preemptors = Preemptors(state, pods, self._filtering, negotiator)
        preemptors = self._preemptors
        self._rejections = Rejections(
            pods,
            self._posting,
            self._free,
            self._ask_standalone,
            preemptors.make_room,
            preemptors.where_it_evicts,
            self._of_no_use,
        )
        self._turns = Turns(state, pods, self._rejections)
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
        """What can be asked."""
        return tuple(self._verbs)

    def owns(self, pod: Pod) -> bool:
        """Whether the pod is negotiated for here: until it is bound."""
        return not pod.spec.node_name and self._scope.owns(pod)

    def pod_terminal(self, pod: Pod) -> None:
        """Its scheduler asks no more."""

    async def answer(self, verb: str, body: bytes) -> bytes:
        """The response to a scheduler's call with that body. Raises wire.BadCall, and LeaseLost: a process that
        was stopped does not know what has happened since, and whoever leads would not hear what it answered."""
        self._posting.check_lease()
        started = self._monotonic()
        try:
            return await self._verbs[verb](body)
        finally:
            self._seconds[verb].observe(self._monotonic() - started)

    def _device_class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        self._backed.changed(old, new)
        self._pods.wake(DEVICE_CLASSES_CHANGED)

    async def _filter(self, body: bytes) -> bytes:
        asked = wire.proposed(body)
        nodes = asked.nodes()
        known = self._rejections.asked(asked.uid)
        if known is not None and known.still_holds(self._sets.of(nodes), self._pods):
            return known.answer
        pod = asked.pod()
        self._unknown.asked(pod)
        having = self._with_extended_resources(pod, nodes)
        if not having:
            return self._reject(pod, nodes, _unbacked(self._backed.of(pod)))
        if not pod.spec.resource_claims:
            return self._plain(pod, asked, nodes, having)
        if self._binder.node_of(pod.metadata.uid):
            return self._being_bound(pod, nodes)
        attempt = self._pods.attempt(pod)
        if attempt.failures.left(now()):
            return self._paused(pod, nodes, attempt.failures.until)
        attempt.extender.filter_called()
        try:
            result = self._filtering.filter(pod, having, choosy=asked.choosy())
        except DriverFault as fault:
            return self._driver_failed(pod, nodes, fault)
        if result.viable and (turn := self._turns.of_another(pod)) is not None:
            return self._reject(pod, nodes, not_yet(turn.claim), lapses=turn.until)
        if not result.viable:
            self._preemptors.proposed(pod, self._sets.of(nodes))
            return self._reject(pod, nodes, result)
        attempt.extender.filter_answered(result.viable)
        if result.assumed is not None:
            self._assumed.put(result.assumed)
        self._rejections.drop(pod.metadata.uid)
        if not self._unknown.is_another(pod):
            self._pods.leave_line(_key(pod))
        return wire.passed(result.viable, (), "")

    def _plain(self, pod: Pod, asked: wire.Proposed, nodes: Sequence[str], having: Sequence[str]) -> bytes:
        """A pod without claims is kept out of what is reserved for users of claims."""
        result = self._filtering.plain(pod, having)
        if not result.viable:
            return self._reject(pod, nodes, result)
        if self._rejections.knows(pod.metadata.uid):
            self._rejections.drop(pod.metadata.uid)
            self._pods.leave_line(_key(pod))
        everywhere = len(result.viable) == len(nodes)
        return wire.all_pass(asked.names_as_sent) if everywhere else wire.passed(result.viable, (), "")

    def _with_extended_resources(self, pod: Pod, nodes: Sequence[str]) -> Sequence[str]:
        """The nodes that have themselves what a DRA driver would otherwise allocate."""
        wanted = self._backed.of(pod)
        if not wanted:
            return nodes
        return [node for node in nodes if wanted <= self._cluster.allocatable(node).keys()]

    def _reject(
        self, pod: Pod, names: Sequence[str], result: FilterResult, *, lapses: float | None = None
    ) -> bytes:
        assert result.blocked is not None
        problem, line = result.blocked.problem, result.blocked.line
        self._pods.attempt(pod).extender.filter_answered(())
        self._assumed.drop(pod.metadata.uid)
        nodes = self._sets.of(names)
        # What the first of a line can't get another can, on a node that the scheduler left out for the first.
        line = (line, nodes, frozenset(self._backed.of(pod))) if result.by_nodes else line
        if not result.standalone and not self._unknown.is_another(pod):
            self._pods.line_up(_key(pod), line, problem.topics, result.blocked.helps)
        shown = pod.spec.resource_claims and problem.code != reasons.CLAIM_NOT_FOUND
        reported_in = "podscheduling" if shown else "events"
        answer = self._sets.refusal(nodes, _message(problem, reported_in))
        revision = self._pods.revision(problem.topics)
        flags = result.undo, result.standalone, result.by_nodes
        rejection = Rejection(nodes, answer, problem, revision, *flags, line, lapses=lapses)
        self._rejections.add(pod, rejection)
        return answer

    def _being_bound(self, pod: Pod, nodes: Sequence[str]) -> bytes:
        """The scheduler gave up a bind that goes on here, another would fail: the answer waits for its end."""
        return self._put_off(
            pod, nodes, Problem(reasons.BINDING, "the pod is being bound", (), transient=True), 0.0
        )

    def _paused(self, pod: Pod, nodes: Sequence[str], until: float) -> bytes:
        """Drivers, or the API server, refused whatever was tried; the PodScheduling has the reason."""
        problem = Problem(reasons.ALLOCATION_FAILED, "it is tried again after a pause", ())
        return self._put_off(pod, nodes, problem, until)

    def _put_off(
        self, pod: Pod, names: Sequence[str], problem: Problem, until: float, *, reported: bool = True
    ) -> bytes:
        nodes = self._sets.of(names)
        answer = self._sets.refusal(nodes, _message(problem))
        known = problem if reported else None
        self._rejections.add(pod, Rejection(nodes, answer, problem, (), until=until, reported=known))
        return answer

    def _driver_failed(self, pod: Pod, nodes: Sequence[str], fault: DriverFault) -> bytes:
        """The pod is left alone for a growing pause, and an event reports why."""
        self._assumed.drop(pod.metadata.uid)
        failures = self._pods.attempt(pod).failures
        failures.begin(now())
        problem = Problem(reasons.DRIVER_FAILED, str(fault), ())
        return self._put_off(pod, nodes, problem, failures.until, reported=False)

    async def _prioritize(self, body: bytes) -> bytes:
        asked = wire.proposed(body)
        assumed = self._assumed.of(asked.uid)
        if assumed is None or not assumed.demand.has_preferences:
            return wire.scores({})
        try:
            preferences = assumed.demand.scores(asked.nodes(), {})
        except DriverFault:
            return wire.scores({})  # the filter was answered, and any of its nodes will do
        most = sum(assumed.demand.weights.values())
        return wire.scores(
            {node: round(BEST_SCORE * score / most) for node, score in preferences.items() if score}
        )

    async def _preempt(self, body: bytes) -> bytes:
        pod, victims = wire.preemption(body)
        self._unknown.asked(pod)
        nodes = self._with_extended_resources(pod, list(victims))
        viable = set(self._viable(pod, nodes))
        answered = self._rejections.answered_before_preemption(pod.metadata.uid)
        if pod.spec.resource_claims or len(viable) < len(nodes):
            self._preemptors.preemptible(pod, nodes)
            if not viable and answered:
                self._rejections.not_evicted(pod)
            elif not viable:
                self._of_no_use(pod)
        return wire.victims({node: victims[node] for node in nodes if node in viable})

    def _viable(self, pod: Pod, nodes: Sequence[str]) -> Collection[str]:
        """The nodes on which evicting others would help the pod."""
        if self._binder.node_of(pod.metadata.uid) or self._turns.of_another(pod):
            return ()
        outdated = sorted(self._rejections.outdated(pod.metadata.uid))
        if outdated and not self._rejected(pod, outdated):
            return ()  # one of these will do: the scheduler is made to ask again
        if pod.spec.resource_claims:
            return self._filtering.viable(pod, nodes)
        return self._filtering.unreserved(nodes)

    def _of_no_use(self, pod: Pod) -> None:
        """The scheduler's own filters reject the pod everywhere, and to evict others would not help it now; once
        that would, its scheduler is made to try it again."""
        nodes = sorted(self._pods.attempt(pod).extender.preemptible)
        if not nodes:
            return
        if self._binder.node_of(pod.metadata.uid):
            self._being_bound(pod, nodes)
        elif (turn := self._turns.of_another(pod)) is not None:
            self._reject(pod, nodes, not_yet(turn.claim), lapses=turn.until)
        elif not self._rejected(pod, nodes):
            return
        self._rejections.in_tree(pod.metadata.uid)

    def _rejected(self, pod: Pod, nodes: Sequence[str]) -> bool:
        """Whether the pod is rejected on all of the nodes; that is noted."""
        has_claims, filtering = bool(pod.spec.resource_claims), self._filtering
        try:
            result = filtering.filter(pod, nodes, choosy=False) if has_claims else filtering.plain(pod, nodes)
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
            self._rejections.drop(pod.uid)
        return wire.bound(why_not)

    def pod_updated(self, pod: Pod) -> None:
        """The pod came or changed in any way: a bind may wait for its status."""
        self._notifications.notify(_key(pod))
        if self._unknown.turned_up(pod) and not pod.spec.node_name:
            self._rejections.unasked(pod)
            self._pods.requeue(_key(pod))

    def is_binding(self, pod: Pod) -> bool:
        """Whether the pod is just being bound; if so, its bind is notified."""
        if not self._binder.node_of(pod.metadata.uid):
            return False
        self._notifications.notify(_key(pod))
        return True

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Something about the unbound pod may have changed."""
        failing = next((claim.problem for claim in claims if claim.problem and claim.problem.fails_pod), None)
        if failing is not None and not pod.spec.node_name:
            await self._free(reference(pod))
            return await self._placement.fail(pod, failing.code, failing.message, unchanged=True)
        if (failed := await self._negotiator.give_up_elsewhere(key, pod, claims)) is not None:
            return failed
        if await self._unplaced(key, pod, claims):
            return AT_ONCE
        return await self._rejections.look(key, pod, claims)

    async def _unplaced(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether the pod held something for so long that others may have it, as its scheduler, which may find no
        node for it any more, had no use for it. Raises Busy if it is bound by now, and what a client raises."""
        user, asked = reference(pod), [claim for claim in claims if claim.standalone and claim.problem is None]
        if not self._ledger.of_pod(user) or any(claim.state(pod) is ClaimState.PENDING for claim in asked):
            return False
        attempt = self._pods.attempt(pod)
        if (left := attempt.binding_seconds_left(now())) > 0:
            self._pods.requeue(key, left)
            return False
        await self._free(user)
        attempt.not_bound_in_time()
        return True

    async def _free(self, pod: PodReference) -> None:
        await self._binder.release(pod, doubtful=True)

    async def _ask_standalone(self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: Nodes) -> Result:
        """What the first of a line can't get another can, on a node that the scheduler left out for the first."""
        preemptible = self._pods.attempt(pod).extender.preemptible - nodes
        proposed = self._filtering.nodes(pod, claims, common_nodes(claims), sorted(nodes), preemptible)
        result = await self._negotiator.negotiate(key, pod, claims, proposed)
        return replace(result, line=(result.line, nodes, preemptible)) if isinstance(result, Wait) else result

    async def void_bindings(self, pod: PodReference) -> None:
        """Also what an earlier leader posted."""
        await self._posting.void_bindings(pod, doubtful=True)

    def resume(self) -> None:
        """After the cluster was restored: pods that wait may have been refused by an earlier leader. Those without
        claims were if they had no room beside what is reserved; nobody else looks at them."""
        owned = [pod for pod in self._cluster.pods() if self.owns(pod) and not over(pod)]
        for pod in sorted(owned, key=arrival):
            if pod.spec.resource_claims:
                self._pods.attempt(pod)  # its place is by arrival, not by when it is asked about
                self._rejections.unasked(pod)
            elif self._ledger.reserves and not pod.spec.node_name:
                self._rejections.unasked(pod)
                self._pods.requeue(_key(pod))

    @property
    def remembered(self) -> int:
        """How many entries about pods there are."""
        return len(self._pods) + len(self._rejections) + len(self._assumed) + len(self._unknown)

    def _forget_unknown(self, pod: PodReference) -> None:
        self._pods.forget_unknown(pod)
        self.pod_gone(pod)

    def pod_gone(self, pod: PodReference) -> None:
        """Forget the pod."""
        self._rejections.drop(pod.uid)
        self._assumed.drop(pod.uid)
        self._posting.forget(pod.uid)
        self._notifications.notify((pod.namespace, pod.name))


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name


def _unbacked(names: Set[str]) -> FilterResult:
    why = unbacked(names)
    return FilterResult(blocked=Blocked(Problem(reasons.OTHER_SCHEDULER, why, (DEVICE_CLASSES_CHANGED,)), why))


def _message(problem: Problem, reported_in: str = "podscheduling") -> str:
    """What the scheduler writes into the pod's condition: the same message as long as the phase is the same, since
    another one would change the pod, which makes the scheduler ask again. The same for all pods: see NodeSets."""
    if problem.transient:
        return _SOON
    if problem.code == reasons.OTHER_SCHEDULER:
        return f"{EXTENDER_SAYS}{problem.message}"
    return f"{EXTENDER_SAYS}{problem.code}, see the pod's {reported_in}"
