"""Puts a decision into effect: allocates on the selected node or offers nodes, records, and releases."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.api.wording import listed, noun_for
from parley.control.allocation import Aborted, AllocationFailed, Allocator, Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import Blocked, admit
from parley.control.decision.demand import Demand
from parley.control.decision.kept import kept_nodes
from parley.control.holding import Holding
from parley.control.live import live_pod
from parley.control.objects.mirror import is_offer, offer_body, recorded_units
from parley.control.objects.pod import over, priority, reference
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator, Departure
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, BadRequest, Client
from parley.kube.queue import Requeue
from parley.negotiation.states import ClaimState
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import AT_ONCE, Result
from parley.scheduler.retried import nominate_briefly
from parley.scheduler.standalone import StandaloneSessions
from parley.sdk import PermanentError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """A driver could not allocate; `result` is what is next."""

    result: Result


def _not_again(classes: Sequence[str]) -> str:
    """The remedy where a driver failed permanently."""
    which = f"{noun_for(len(classes), 'class', 'classes')} {listed(classes)}"
    return f"the pod does not try it again: recreate the pod, or change {which}, once the cause is gone"


class Placement:
    """Allocates, offers, records and releases for pods whose nodes are decided."""

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
        """Whether the API server is not known to drop what makes an allocation an offer."""
        self._offered_before = False

    async def allocate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, node: str, *, offered: bool
    ) -> Result | NotAllocated:
        """Embedded drivers allocate on the node, standalone ones are asked to. Returns what is next."""
        inside = [claim for claim in claims if claim.entry in demand.drivers and not claim.standalone]
        meanwhile: list[str] = []  # empty as long as nobody else has had a turn
        asyncio.get_running_loop().call_soon(meanwhile.append, "others")
        try:
            await self._allocator.allocate(pod, inside, demand, node, offered=offered)
        except Aborted:
            self._pass_on(pod, inside)
            raise
        except AllocationFailed as failure:
            self._pass_on(pod, inside)
            permanent = isinstance(failure.__cause__, PermanentError)
            return NotAllocated(await self.failed(key, pod, node, str(failure), inside if permanent else ()))
        if not pod.spec.node_name and self._cluster.has_pod(reference(pod)):  # or nobody takes it back
            self._cluster.usage.assume(pod, node)
        if meanwhile:
            self._pods.may_be_evicted(pod, demand.requests, node)
        if demand.standalone:
            return await self._sessions.select(pod, demand, node)
        self._allocator.join(pod, claims)
        self._pods.leave_line(key)
        self._pods.reporter.allocated(pod, node)
        return await self.write(pod, claims)

    def _pass_on(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Nothing came of the allocation: pods that it kept out may try."""
        for claim in claims:
            if claim.claim is not None:
                self._pods.wake(("claim", pod.metadata.namespace, claim.name))

    async def failed(
        self, key: Key, pod: Pod, node: str, message: str, permanent: Sequence[PodClaim]
    ) -> Requeue | None:
        """A driver could not allocate on the node; for the claims in `permanent` it never will."""
        attempt = self._pods.attempt(pod)
        attempt.left.add(node)
        self._pods.leave_line(key)
        if permanent:
            classes = sorted({claim.class_name for claim in permanent})
            attempt.exclude(node, f"{message} ({_not_again(classes)})", classes)
        if any(c.class_ is not None and c.class_.on_permanent_error == "FailPod" for c in permanent):
            return await self.fail(pod, reasons.PERMANENTLY_FAILED, message)
        reporter, code = self._pods.reporter, reasons.ALLOCATION_FAILED
        if attempt.failed_everywhere:  # else the next node is tried at once
            await reporter.waits(pod, attempt, code, message)
        else:
            await reporter.warn(pod, code, message)
        return Requeue()

    async def fail(self, pod: Pod, code: str, message: str, *, unchanged: bool = False) -> Requeue | None:
        """The pod can't run, and whoever made it shall replace it. One that is bound is its kubelet's. Raises
        Conflict if it has to be `unchanged` since the cache saw it, and is not."""
        await self._pods.reporter.warn(pod, code, message)
        if pod.spec.node_name:
            return Requeue()
        meta = pod.metadata
        known = {"uid": meta.uid, **({"resourceVersion": meta.resource_version} if unchanged else {})}
        body = {"metadata": known, "status": {"phase": "Failed", "reason": code, "message": message}}
        await self._client.patch(PODS, meta.name, body, meta.namespace, subresource="status")
        return None

    async def have_retried(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """What the pod had is released, as its scheduler did not bind it. That looks at claims no more if its own
        filters rejected the pod everywhere: what the pod gets next it would not see for minutes."""
        nodes = sorted(node for holding in holdings for node in holding.nodes or ())
        if nodes and not pod.status.nominated_node_name:
            self._pods.attempt(pod).nominated_by_us(nodes[0])
            await nominate_briefly(self._client, reference(pod), nodes[0])

    async def write(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """Record the holdings. What the API will never accept is released, and reported to the user."""
        attempt = self._pods.known(reference(pod))
        session = attempt.standalone.session if attempt is not None else None
        if session is not None and session.selection is not None:
            self._sessions.allocated(pod)
            self._pods.reporter.allocated(pod, session.selection.node)
        try:
            await self._records.write(claims)
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

    async def put_right(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """The same, unless somebody removed what was written with reason, and Busy is raised: the claim controller
        takes out a pod that is deleted as often as it is put in."""
        if any(claim.holding is not None and claim.holding.written.is_known for claim in claims):
            await self.check_current(pod)
        return await self.write(pod, claims)

    async def check_current(self, pod: Pod) -> None:
        """Raises Busy if the cache is behind: the pod is gone, has ended, or was bound or deleted meanwhile."""
        live = await live_pod(self._client, reference(pod))
        if live is None or live.spec.node_name != pod.spec.node_name or (over(live) and not over(pod)):
            raise Busy

    async def release_all(self, pod: Pod, cleared: Sequence[Holding] = ()) -> None:
        """The pod holds and waits for nothing any more.

        Raises Busy if the pod is not as the cache has it, or has again what somebody had `cleared`. That is
        looked at first: the scheduler may have bound the pod by then.
        """
        user = reference(pod)
        self._sessions.end(pod)
        if self._ledger.of_pod(user):
            await self.check_current(pod)
        self._cluster.usage.remove(user.uid)
        uids = {holding.uid for holding in cleared}
        holdings = sorted(self._ledger.of_pod(user), key=lambda holding: holding.uid not in uids)
        await self._release(pod, holdings, cleared)
        if (attempt := self._pods.known(user)) is not None:
            attempt.complete_since = None

    async def release_misplaced(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """The bound pod can't use these: they end, or are left to others. Its containers may be using what else it
        holds. Raises Busy if the pod is not as the cache has it."""
        await self.check_current(pod)
        await self._release(pod, holdings)

    async def _release(self, pod: Pod, holdings: Sequence[Holding], cleared: Sequence[Holding] = ()) -> None:
        node = pod.spec.node_name
        for holding in holdings:
            prepared_on = (node,) if node and holding.may_run_on(node) else ()
            departure = Departure(departed=False, bound=bool(node), prepared_on=prepared_on)
            await self._deallocator.release(reference(pod), [holding], departure, cleared)

    async def offer(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, nodes: Sequence[str]
    ) -> Result:
        """Let the scheduler choose among the nodes. Returns what is next."""
        attempt = self._pods.attempt(pod)
        if not self._offered_before and not await self._would_offer(claims[0], demand, nodes):
            return self._offers_no_more()
        written = await self._records.offer(claims, demand.drivers, nodes, _units(claims, demand))
        if not all(map(_is_offered, written)):
            for mirror in written:
                await self._records.clear(mirror)
            return self._offers_no_more()
        self._offered_before = True
        attempt.offer(nodes)
        self._pods.reporter.chooses(pod, attempt)
        self._pods.leave_line(key)
        return None

    async def _would_offer(self, claim: PodClaim, demand: Demand, nodes: Sequence[str]) -> bool:
        """Whether the API server would keep what makes an allocation an offer. Without it a scheduler would bind
        the pod at once, with nothing allocated."""
        assert claim.mirror is not None
        meta, driver = claim.mirror.metadata, demand.drivers[claim.entry]
        at = meta.creation_timestamp or ""  # whenever: nothing is stored
        body = {"status": {"allocation": offer_body(claim.mirror, driver, nodes, at)}}
        try:
            shown = await self._client.patch(
                BUILTIN_CLAIMS, meta.name, body, meta.namespace, subresource="status", dry_run=True
            )
        except BadRequest:
            return True  # a webhook may not take part in a dry run: it is seen from the write itself
        return _is_offered(shown)

    def _offers_no_more(self) -> Requeue:
        log.warning(
            "the API server drops bindingConditions: nothing is offered to schedulers, whatever `placement` says",
            remedy="enable its feature gate DRADeviceBindingConditions (on by default), and restart Parley",
        )
        self.can_offer = False
        return AT_ONCE

    async def follow_offer(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """See whether the scheduler chose one of the nodes offered, and allocate there."""
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
        if not all(chosen in claim.offered_nodes for claim in offered) or not all(h.reaches(chosen) for h in held):
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
        self._pods.attempt(pod).pause_if_nothing_else(now())
        await self._withdraw(pod, offered, nothing_allocated(chosen))
        return result.result

    async def _await_choice(self, pod: Pod, offered: Sequence[PodClaim]) -> Requeue:
        """The scheduler reserved the offer and names no node. It may never do so, and waits for a driver all the
        while; in the end it has to choose again."""
        left = self._pods.attempt(pod).until_withdrawn(now())
        if left > 0:
            return Requeue(left)
        await self._withdraw(pod, offered, "the scheduler did not say which of the nodes it chose")
        return AT_ONCE

    async def _withdraw(self, pod: Pod, offered: Sequence[PodClaim], why: str) -> None:
        """The offer ends, and not because the scheduler wants none of these nodes."""
        self._pods.attempt(pod).offered = ()
        await self._records.decline(offered, why)


def _units(claims: Sequence[PodClaim], demand: Demand) -> dict[str, int]:
    """What has to be recorded with an offer, by entry. Raises DriverFault."""
    recorded = [claim.entry for claim in claims if demand.records_units(claim)]
    counts = demand.units() if recorded else {}
    return {entry: counts[entry] for entry in recorded}


def chosen_node(pod: Pod, offered: Sequence[PodClaim]) -> str:
    """Where the scheduler wants the pod for which it reserved the offer; "" if it did not say yet.

    Of one node nothing needs to be said, and kube-scheduler may say nothing: it does not write a nomination that
    it believes to be there, also while its own write that ends it is under way (as of 1.37).
    """
    nodes = {node for claim in offered for node in claim.offered_nodes}
    return pod.spec.node_name or (nodes.pop() if len(nodes) == 1 else pod.status.nominated_node_name)


def nothing_allocated(node: str) -> str:
    """The message for the scheduler that chose the node; the driver's own is in an event of the pod."""
    return f"nothing could be allocated on node {node}, see the pod's events"


def _is_offered(mirror: BuiltinClaim) -> bool:
    return mirror.status.allocation is not None and is_offer(mirror.status.allocation)
