"""Serves the extender's bind call: allocates on the node that the scheduler chose, records that, and binds the
pod.

A bind waits only for what is under way: a claim that is being generated, or allocated for another pod. Each pod
has one bind at a time, with a time limit below the scheduler's, after which nothing is posted. If a bind fails,
all that it allocated is released once it is certain that the pod is not bound.
"""

from collections.abc import Sequence
from math import inf

import structlog

from parley.api.builtin import Pod
from parley.api.wording import listed
from parley.control.allocation import Busy, Saturated
from parley.control.claims.gathering import gather
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import Blocked, admit
from parley.control.decision.kept import kept_nodes
from parley.control.objects.pod import is_done, priority, reference
from parley.control.room import Requester, room_shortage
from parley.control.state import State
from parley.control.telemetry.connections import SCHEDULER
from parley.kube.cache import Key
from parley.kube.client import ApiError, Conflict, OutcomeUnknown
from parley.negotiation.requests import requested
from parley.negotiation.states import ClaimState
from parley.scheduler.extender.assumed import AssumedPods
from parley.scheduler.extender.filtering import unusable
from parley.scheduler.extender.notifications import Notifications
from parley.scheduler.extender.posting import NotBound, Posting
from parley.scheduler.extender.scope import Scope, unsupported
from parley.scheduler.placement import NotAllocated, Placement, nothing_allocated
from parley.scheduler.pods import Pods, now
from parley.sdk import PodReference
from parley.sdk.checks import DriverFault

log = structlog.get_logger(__name__)

BIND_SECONDS = 45.0
"""How long a bind may take; the scheduler has to wait longer (`httpTimeout` of its entry with `bindVerb`)."""

MOST_BINDS = SCHEDULER.most * 3 // 4
"""The binds that may be under way at once. Each occupies one of the scheduler's connections: a slow driver that
keeps binds waiting must not take all of them from the scheduler's other calls."""

UNSEEN_SECONDS = 5.0
"""How long a bind waits for Parley's watch to show the pod before the API server is asked if it exists: one of
a pod that is gone must not occupy a connection for the whole time."""

_POLL_SECONDS = 0.5
"""How often a waiting bind checks for changes that cause no event of its pod."""


_AGAIN = "the scheduler tries again"
_BEING_RELEASED = f"what the pod held is being released: {_AGAIN} when that is done"


class BindRefused(Exception):
    """Raised when the pod can't be bound to the node now. The message is for the scheduler's event."""


class _OfAnotherScheduler(BindRefused):
    """Raised for a pod that is not the caller's to bind: what it holds stays its own."""


class Binder:
    """Serves the extender's bind call: has drivers allocate on the node that the scheduler chose, records it, and
    posts the binding."""

    def __init__(
        self,
        state: State,
        placement: Placement,
        pods: Pods,
        assumed: AssumedPods,
        notifications: Notifications,
        posting: Posting,
        scope: Scope,
    ) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._placement = placement
        self._pods = pods
        self._assumed = assumed
        self._notifications = notifications
        self._posting = posting
        self._scope = scope
        self._under_way: dict[PodReference, str] = {}
        self._releasing: set[PodReference] = set()

    def node_of(self, user: PodReference) -> str:
        """The node that the pod is being bound to, "" if it is not being bound."""
        return self._under_way.get(user, "")

    async def bind(self, user: PodReference, node: str) -> str:
        """Bind the pod to the node; returns why it is not bound, "" if it is."""
        if busy := self.node_of(user):
            return f"the pod is being bound to node {busy}: wait until that is done"
        if user in self._releasing:
            return _BEING_RELEASED
        if len(self._under_way) >= MOST_BINDS:
            return f"{MOST_BINDS} pods are being bound, which is the most at a time: {_AGAIN}"
        if why := self._missing(node):
            return why
        self._under_way[user] = node
        self._assumed.narrow(user, node)
        try:
            await self._bind(user, node, now() + BIND_SECONDS)
        except BindRefused as error:
            return str(error)
        except DriverFault as fault:
            return str(fault)
        except (ApiError, OutcomeUnknown) as error:
            return f"not bound to node {node}: the API server: {error}: {_AGAIN}"
        finally:
            del self._under_way[user]
            self._assumed.drop(user)
            self._pods.requeue((user.namespace, user.name))
            if self._pods.forget_if_gone(user):
                self._posting.forget(user)
        return ""

    async def _bind(self, user: PodReference, node: str, until: float) -> None:
        try:
            pod, claims = await self._ready(user, node, until)
            if now() >= until:
                raise BindRefused(_too_late(node, "its claims were allocated too late"))
            if not claims:
                self._take_room(pod, node)
            await self._posting.bind(pod, node, exactly=bool(claims), until=until)
        except _OfAnotherScheduler:
            raise
        except Exception as error:  # not on cancellation: the next leader finds out what happened
            await self._undo(user)
            if not isinstance(error, OutcomeUnknown):
                self._return_room(user)
            if isinstance(error, NotBound):
                raise BindRefused(str(error)) from None
            raise
        self._posting.forget(user)
        self._pods.leave_line((user.namespace, user.name))
        if (current := self._cluster.pod((user.namespace, user.name))) is not None and not is_done(current):
            self._cluster.usage.assume(current, node)

    def _missing(self, node: str) -> str:
        """Why the node can't be bound to, "" if it exists. The API server accepts any name in a binding, and the
        garbage collector then deletes the pod."""
        return "" if self._cluster.node(node) is not None else f"node {node} does not exist: {_AGAIN}"

    def _take_room(self, pod: Pod, node: str) -> None:
        """Count a pod without claims towards the node's usage before it is bound, if room is reserved there.
        Raises BindRefused if there is no room for it any more."""
        if not self._ledger.reserving(node):
            return
        if why := room_shortage(self._state, node, Requester.of(self._state, pod, requested(pod).items())):
            raise BindRefused(f"node {node}: {why}")
        self._cluster.usage.assume(pod, node)

    def _return_room(self, user: PodReference) -> None:
        """Stop counting the pod, which was not bound."""
        if not self._ledger.of_pod(user):
            self._cluster.stop_assuming(user)

    async def _ready(self, user: PodReference, node: str, until: float) -> tuple[Pod, Sequence[PodClaim]]:
        """The pod and its claims, once all of these are allocated on the node and recorded for it."""
        key = (user.namespace, user.name)
        waits = "Parley's watch of pods has not shown the pod yet"
        read_at = now() + UNSEEN_SECONDS
        while now() < until:
            pod = self._cluster.pod_with_uid(user)
            if pod is not None:
                if why := self._scope.why_not(pod):
                    raise _OfAnotherScheduler(why)
                if is_done(pod) or pod.spec.node_name:
                    raise BindRefused("the pod has ended, is being deleted, or is bound already")
                claims = gather(self._state, pod)
                try:
                    waits = await self._step(key, pod, claims, node)
                except Saturated as error:
                    waits = str(error)
                except (Conflict, Busy):
                    waits = "one of its claims is changing"
                if why := self._missing(node):
                    raise BindRefused(why)
                if not waits and (named := self._named(user, claims)) is not None:
                    return named, claims
            elif now() >= read_at:
                await self._posting.check_exists(user)
                read_at = inf
            await self._notifications.wait(key, min(until, now() + _POLL_SECONDS))
        raise BindRefused(_too_late(node, waits))

    def _named(self, user: PodReference, claims: Sequence[PodClaim]) -> Pod | None:
        """The pod, once its status names all of its claims, and none that was recreated since: the kubelet reads
        the status, and its change would make a binding of the version before fail."""
        pod = self._cluster.pod_with_uid(user)
        if pod is None:
            return None
        known = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        own = {claim.entry: claim.name for claim in claims}
        generated = (e.name for e in pod.spec.resource_claims if e.resource_claim_template_name)
        return pod if all(e in known and known[e] == own.get(e, known[e]) for e in generated) else None

    async def _step(self, key: Key, pod: Pod, claims: Sequence[PodClaim], node: str) -> str:
        """Take the next step to a complete allocation. Returns what it waits for, "" if all is recorded."""
        if why := unsupported(pod, claims):
            raise BindRefused(why)
        for problem in (claim.problem for claim in claims if claim.problem is not None):
            if not problem.transient:
                raise BindRefused(problem.message)
            return problem.message
        if unusable(pod, claims) or any(not self._usable_on(claim, node) for claim in claims):
            raise BindRefused(f"what the pod held can't be used on node {node} and is released first: {_AGAIN}")
        states = {claim.state(pod) for claim in claims}
        if ClaimState.STALE in states:
            return "Parley's watch of claims has not shown yet what was written to one of its claims"
        if states & {ClaimState.PENDING, ClaimState.JOINABLE}:
            return await self._allocate(key, pod, claims, node)
        if ClaimState.UNWRITTEN in states:
            await self._placement.rewrite(pod, claims)
        return self._recorded(pod, claims)

    def _usable_on(self, claim: PodClaim, node: str) -> bool:
        return claim.holding is None or claim.holding.usable_on(node)

    async def _allocate(self, key: Key, pod: Pod, claims: Sequence[PodClaim], node: str) -> str:
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        self._assumed.uncount(reference(pod))
        demand = admit(self._state, reference(pod), pending, self._pods.attempt(pod).begun)
        if isinstance(demand, Blocked):
            raise BindRefused(demand.problem.message)
        if demand.standalone:
            drivers = listed(sorted({demand.drivers[claim.entry] for claim in demand.standalone}))
            raise BindRefused(f"driver {drivers} runs standalone now: {_AGAIN}")
        kept = kept_nodes(self._state, pod.metadata.uid, priority(pod), demand)
        if node in kept:  # another pod was nominated for it since the scheduler called filter
            raise BindRefused(f"node {node}: {kept[node]}")
        result = await self._placement.allocate(key, pod, claims, demand, node, offered=False)
        if isinstance(result, NotAllocated):
            self._pods.attempt(pod).pause_if_failed_everywhere(now())
            raise BindRefused(f"{nothing_allocated(node)}: {_AGAIN}")
        self._assumed.drop(reference(pod))
        return self._recorded(pod, claims)

    def _recorded(self, pod: Pod, claims: Sequence[PodClaim]) -> str:
        """Raises BindRefused if one of the claims was released because the API server refused a write."""
        holdings = [self._ledger.get(claim.uid) for claim in claims]
        if any(holding is None or pod.metadata.uid not in holding.pods for holding in holdings):
            raise BindRefused(f"the API server refused the allocation, see the pod's events: {_AGAIN}")
        return ""

    async def _undo(self, user: PodReference) -> None:
        """Release what the pod holds, unless it turns out to be bound."""
        try:
            await self.release(user)
        except (Busy, Conflict, ApiError, OutcomeUnknown) as error:
            log.info("kept for now", pod=f"{user.namespace}/{user.name}", why=str(error) or "the pod is bound")

    async def release(self, user: PodReference, *, doubtful: bool = False) -> None:
        """Release what the unbound pod holds, and give up what standalone drivers were asked to allocate for it.
        Raises Busy if it is bound after all, and what a client raises.

        `doubtful`: an earlier process may have posted a binding. No bind of the pod begins meanwhile: it would
        take records for complete that are about to be removed.
        """
        pod = self._cluster.pod_with_uid(user)
        if pod is None or not (self._ledger.of_pod(user) or self._ledger.expects(user)):
            return
        if pod.spec.node_name:
            raise Busy
        self._releasing.add(user)
        try:
            await self._posting.void_bindings(user, doubtful=doubtful)
            await self._placement.release_all(pod)
        finally:
            self._releasing.discard(user)


def _too_late(node: str, waits: str) -> str:
    return (
        f"not bound to node {node} within {BIND_SECONDS:g} s: {waits}: {_AGAIN}. If it stays so, see the "
        "controller's log, and whether the API server is slow"
    )
