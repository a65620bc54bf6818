"""Carries out decisions: allocates on the selected node or offers nodes, records the result, and releases."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.api.wording import listed, noun_for
from parley.control.allocation import AllocationFailed, Allocator, Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import Blocked, admit
from parley.control.decision.demand import Demand
from parley.control.decision.kept import kept_nodes
from parley.control.holding import Holding
from parley.control.live import live_pod_if_unchanged
from parley.control.objects.mirror import is_offer, offer_body, recorded_units
from parley.control.objects.pod import is_done, priority, reference
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator, ReleaseContext
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, BadRequest, Client
from parley.kube.queue import Requeue
from parley.negotiation.states import ClaimState
from parley.scheduler.brief_nomination import nominate_briefly
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import AT_ONCE, Result
from parley.scheduler.standalone import StandaloneSessions
from parley.sdk import PermanentError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """A driver could not allocate; `result` is what follows."""

    result: Result


def _remedy_for_permanent(classes: Sequence[str]) -> str:
    """What a user can do after a driver has failed permanently."""
    which = f"{noun_for(len(classes), 'class', 'classes')} {listed(classes)}"
    return f"the pod does not try it again: recreate the pod, or change {which}, once the cause is gone"


class Placement:
    """Allocates, offers, records and releases for pods whose nodes have been decided."""

    def __init__(
        self,
        client: Client,
        state: State,
        allocator: Allocator,
        records: Records,
        deallocator: Deallocator,
        pods: Pods,
        sessions: StandaloneSessions,
    ) -> None:
        self._client = client
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._allocator = allocator
        self._records = records
        self._deallocator = deallocator
        self._pods = pods
        self._sessions = sessions
        self.can_offer = True
        """False once the API server was seen to drop the binding conditions, which make an allocation an offer."""
        self._offered_before = False

    async def allocate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, node: str, *, offered: bool
    ) -> Result | NotAllocated:
        """Embedded drivers allocate on the node, standalone ones are asked to. Returns what is next."""
        inside = [claim for claim in claims if claim.entry in demand.drivers and not claim.standalone]
        self._sessions.expect(pod, demand)
        yielded: list[bool] = []  # empty until another task has run
        asyncio.get_running_loop().call_soon(yielded.append, True)
        try:
            await self._allocator.allocate(pod, inside, demand, node, offered=offered)
        except Exception as failure:
            if demand.standalone:
                self._sessions.end_expected(reference(pod))
            if yielded:
                self._wake_kept_out(pod, inside)
            if not isinstance(failure, AllocationFailed):
                raise
            permanent = isinstance(failure.__cause__, PermanentError)
            return NotAllocated(await self.failed(key, pod, node, str(failure), inside if permanent else ()))
        if not pod.spec.node_name and self._cluster.has_pod(reference(pod)):  # else nothing ends it
            self._cluster.usage.assume(pod, node)
        if yielded:
            self._pods.wake_preemptors(pod, demand.requests, node)
        if demand.standalone:
            return await self._sessions.select(pod, demand, node)
        self._allocator.join(pod, claims)
        self._pods.leave_line(key)
        self._pods.reporter.allocated(pod, node)
        return await self.write(pod, claims)

    def _wake_kept_out(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Wake the pods that were kept out of these claims by the allocation, which has failed."""
        for claim in claims:
            if claim.claim is not None:
                self._pods.wake(("claim", pod.metadata.namespace, claim.name))

    async def failed(
        self, key: Key, pod: Pod, node: str, message: str, permanent: Sequence[PodClaim]
    ) -> Requeue | None:
        """Handle a driver's failure to allocate on the node; for the claims in `permanent` it never will."""
        attempt = self._pods.attempt(pod)
        attempt.avoided.add(node)
        self._pods.leave_line(key)
        if permanent:
            classes = sorted({claim.class_name for claim in permanent})
            attempt.exclude(node, f"{message} ({_remedy_for_permanent(classes)})", classes)
        if any(c.class_ is not None and c.class_.on_permanent_error == "FailPod" for c in permanent):
            return await self.fail(pod, reasons.PERMANENTLY_FAILED, message)
        reporter, code = self._pods.reporter, reasons.ALLOCATION_FAILED
        if attempt.failed_everywhere:  # else the next node is tried at once
            await reporter.waits(pod, attempt, code, message)
        else:
            await reporter.warn(pod, code, message)
        return Requeue()

    async def fail(self, pod: Pod, code: str, message: str, *, unchanged: bool = False) -> Requeue | None:
        """Set the phase of an unbound pod to Failed, so that its controller replaces it; the status of a bound pod
        is its kubelet's. Raises Conflict if `unchanged` is set and the pod has changed since the cache saw it."""
        await self._pods.reporter.warn(pod, code, message)
        if pod.spec.node_name:
            return Requeue()
        meta = pod.metadata
        known = {"uid": meta.uid, **({"resourceVersion": meta.resource_version} if unchanged else {})}
        body = {"metadata": known, "status": {"phase": "Failed", "reason": code, "message": message}}
        await self._client.patch(PODS, meta.name, body, meta.namespace, subresource="status")
        return None

    async def nominate_briefly(self, pod: Pod, nodes: Iterable[str]) -> None:
        """Make the scheduler try the pod again, whose claims on these nodes were released because it did not bind
        it. If its own filters rejected the pod everywhere, it would not notice a new allocation for minutes."""
        node = min(nodes, default="")
        if node and not pod.status.nominated_node_name:
            self._pods.attempt(pod).nominated_by_us(node)
            await nominate_briefly(self._client, pod, node)

    async def write(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Record the holdings in the API. If it refuses them, release them and report that to the user."""
        attempt = self._pods.existing_attempt(reference(pod))
        session = attempt.standalone.session if attempt is not None else None
        if session is not None and session.selection is not None:
            self._sessions.allocated(pod)
            self._pods.reporter.allocated(pod, session.selection.node)
        try:
            await self._records.write(claims, pod)
        except REFUSALS as error:
            attempt = self._pods.attempt(pod)
            pause = attempt.failures.begin(now())
            self._pods.leave_line((pod.metadata.namespace, pod.metadata.name))  # others need not wait
            if not pod.spec.node_name:
                await self.release_all(pod)
            message = f"the API server refused the allocation: {error.message}"
            await self._pods.reporter.waits(pod, attempt, reasons.ALLOCATION_FAILED, message)
            return Requeue(pause)
        return None

    async def rewrite(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Record the holdings again after somebody removed them. Raises Busy if the removal may have a reason: the
        claim controller removes the reservation of a deleted pod as often as it is written."""
        if any(claim.holding is not None and claim.holding.written.is_known for claim in claims):
            await self.check_current(pod)
        return await self.write(pod, claims)

    async def check_current(self, pod: Pod) -> None:
        """Raise Busy if the cache is behind: the pod is gone, has ended, or was bound, nominated or deleted
        meanwhile. A scheduler that has nominated a node may be binding the pod to it."""
        live = await live_pod_if_unchanged(self._client, self._state, reference(pod))
        if live is None or live.spec.node_name != pod.spec.node_name or (is_done(live) and not is_done(pod)):
            raise Busy
        if not pod.spec.node_name and live.status.nominated_node_name != pod.status.nominated_node_name:
            raise Busy

    async def release_all(self, pod: Pod, cleared: Sequence[Holding] = ()) -> None:
        """Release all that the pod holds, and end its session with standalone drivers.

        Raises Busy if the pod is not as the cache has it, or if what somebody had `cleared` is allocated again.
        The cleared holdings are checked first: the scheduler may have bound the pod meanwhile.
        """
        user = reference(pod)
        self._sessions.end(pod)
        if self._ledger.of_pod(user):
            await self.check_current(pod)
        self._cluster.stop_assuming(user)
        uids = {holding.uid for holding in cleared}
        holdings = sorted(self._ledger.of_pod(user), key=lambda holding: holding.uid not in uids)
        await self._release(pod, holdings, cleared)
        if (attempt := self._pods.existing_attempt(user)) is not None:
            attempt.complete_since = None

    async def release_misplaced(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Release the holdings that the bound pod can't use on its node, and only these: its containers may be
        using the others. Raises Busy if the pod is not as the cache has it."""
        await self.check_current(pod)
        await self._release(pod, holdings)

    async def _release(self, pod: Pod, holdings: Sequence[Holding], cleared: Sequence[Holding] = ()) -> None:
        node = pod.spec.node_name
        for holding in holdings:
            prepared_on = (node,) if node and holding.may_run_on(node) else ()
            context = ReleaseContext(pod_terminal=False, bound=bool(node), prepared_on=prepared_on)
            await self._deallocator.release(reference(pod), [holding], context, cleared)

    async def offer(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, nodes: Sequence[str]
    ) -> Result:
        """Offer the nodes, among which the scheduler then chooses. Returns what is next."""
        attempt = self._pods.attempt(pod)
        if not self._offered_before and not await self._would_offer(claims[0], demand, nodes):
            return self._stop_offering()
        written = await self._records.offer(claims, demand.drivers, nodes, _units(claims, demand))
        if not all(map(_is_offered, written)):
            for mirror in written:
                await self._records.clear(mirror)
            return self._stop_offering()
        self._offered_before = True
        attempt.offer(nodes)
        self._pods.reporter.offered(pod, attempt)
        self._pods.leave_line_if_accepted(key)
        return None

    async def _would_offer(self, claim: PodClaim, demand: Demand, nodes: Sequence[str]) -> bool:
        """Whether the API server would keep the binding conditions. Without them a scheduler would bind the pod at
        once, with nothing allocated."""
        assert claim.mirror is not None
        meta, driver = claim.mirror.metadata, demand.drivers[claim.entry]
        at = meta.creation_timestamp or ""  # any time will do: nothing is stored
        body = {"status": {"allocation": offer_body(claim.mirror, driver, nodes, at)}}
        try:
            shown = await self._client.patch(
                BUILTIN_CLAIMS, meta.name, body, meta.namespace, subresource="status", dry_run=True
            )
        except BadRequest:
            return True  # a webhook may not support dry runs: the write itself will show it
        return _is_offered(shown)

    def _stop_offering(self) -> Requeue:
        log.warning(
            "the API server drops bindingConditions: nothing is offered to schedulers, whatever `placement` says",
            remedy="enable its feature gate DRADeviceBindingConditions (on by default), and restart Parley",
        )
        self.can_offer = False
        return AT_ONCE

    async def follow_offer(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Allocate on the offered node that the scheduler chose, if it has chosen one."""
        offered = [claim for claim in claims if claim.state(pod) is ClaimState.OFFERED]
        if not all(claim.is_reserved(pod) for claim in claims) or any(claim.offer_ended for claim in offered):
            return None
        chosen = chosen_node(pod, offered)
        if not chosen:
            return await self._await_choice(pod, offered)
        live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        if live.metadata.uid != pod.metadata.uid or chosen != chosen_node(live, offered):
            return None
        held = [claim.holding for claim in claims if claim.holding is not None]
        if not all(chosen in claim.offered_nodes for claim in offered) or not all(
            h.usable_on(chosen) for h in held
        ):
            await self._records.decline(offered, f"node {chosen} was not among those offered")
            return None
        demand = admit(self._state, reference(pod), offered, self._pods.attempt(pod).begun)
        if isinstance(demand, Blocked):
            await self._withdraw(pod, offered, demand.problem.message)
            return None
        if any(claim.standalone or claim.offered_by != demand.drivers[claim.entry] for claim in offered):
            await self._withdraw(pod, offered, "the driver of the class has changed")
            return None
        units = _units(offered, demand)
        if any(c.mirror is not None and recorded_units(c.mirror) != units.get(c.entry) for c in offered):
            await self._withdraw(pod, offered, "what it counts for in the limits of the class has changed")
            return None
        kept = kept_nodes(self._state, pod.metadata.uid, priority(pod), demand)
        if chosen in kept:
            self._pods.attempt(pod).offered = (chosen,)
            await self._records.decline(offered, f"node {chosen}: {kept[chosen]}")
            return None
        result = await self.allocate(key, pod, claims, demand, chosen, offered=True)
        if not isinstance(result, NotAllocated):
            return result
        self._pods.attempt(pod).pause_if_failed_everywhere(now())
        await self._withdraw(pod, offered, nothing_allocated(chosen))
        return result.result

    async def _await_choice(self, pod: Pod, offered: Sequence[PodClaim]) -> Requeue:
        """Wait for the scheduler, which reserved the offer without naming a node. It may never name one, as it
        waits for a driver: the offer is withdrawn in the end, so that it chooses again."""
        left = self._pods.attempt(pod).choice_seconds_left(now())
        if left > 0:
            return Requeue(left)
        await self._withdraw(pod, offered, "the scheduler did not say which of the nodes it chose")
        return AT_ONCE

    async def _withdraw(self, pod: Pod, offered: Sequence[PodClaim], why: str) -> None:
        """Withdraw the offer. These nodes do not count as refused by the scheduler."""
        self._pods.attempt(pod).offered = ()
        await self._records.decline(offered, why)


def _units(claims: Sequence[PodClaim], demand: Demand) -> dict[str, int]:
    """The units to record with an offer, by entry. Raises DriverFault."""
    recorded = [claim.entry for claim in claims if demand.records_units(claim)]
    counts = demand.units() if recorded else {}
    return {entry: counts[entry] for entry in recorded}


def chosen_node(pod: Pod, offered: Sequence[PodClaim]) -> str:
    """The node that the scheduler chose for the pod it reserved the offer for; "" if it has not named one yet.

    It need not name the only node of an offer, and kube-scheduler may name none: it does not write a nomination
    that it believes to be set already, even while its own write that clears it is in flight (as of 1.37).
    """
    nodes = {node for claim in offered for node in claim.offered_nodes}
    return pod.spec.node_name or (nodes.pop() if len(nodes) == 1 else pod.status.nominated_node_name)


def nothing_allocated(node: str) -> str:
    """The message for the scheduler that chose the node; the driver's message is in an event of the pod."""
    return f"nothing could be allocated on node {node}, see the pod's events"


def _is_offered(mirror: BuiltinClaim) -> bool:
    return mirror.status.allocation is not None and is_offer(mirror.status.allocation)
