"""Allocates claims with allocationMode Immediate whose driver is embedded: at once, without a pod.

Selects a node as for a pod (candidates, the driver's answers and preferences, the class's limits). The holding is
added to the ledger first and then written to the claim's status, together with the condition `Allocated`; it stays
until the claim is deleted. A claim that can't be allocated has the reason in that condition: it waits in line with
those that want the same, and a change requeues the first of them; a failed one is tried again with back-off.

Left to others: mirror and finalizers (`claims`), pods' use of the claim (the scheduling paths), and claims of
standalone drivers, which allocate them by themselves by the same rules (`parley.sdk.immediate`). The latter are
only counted for their class's limits here, from when they are accepted, which their drivers wait for.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from parley.api import reasons
from parley.api.conditions import ConditionUpdate
from parley.api.models import Allocation, ResourceClaim, ResourceClass
from parley.control.allocation import AllocationFailed, Allocator, Busy
from parley.control.claim_records import ClaimRecords, allocation_status
from parley.control.claims.named import without_pod
from parley.control.claims.podclaims import Problem
from parley.control.decision.decide import Blocked, Search, admit, none_viable, survey
from parley.control.decision.demand import Demand
from parley.control.decision.eligible import SuitableNodes
from parley.control.holding import Holding
from parley.control.limits import counts_when_accepted
from parley.control.release.deallocation import Deallocator
from parley.control.state import State
from parley.kube.backoff import Backoff, Pauses
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, Conflict
from parley.kube.queue import WorkQueue
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.negotiation.selection import ranked
from parley.negotiation.waiting import UP_TO_DATE_SECONDS, Topic, WaitingLines, Woken
from parley.sdk import PermanentError
from parley.sdk.checks import DriverFault
from parley.sdk.immediate import FailedNodes, awaits_acceptance, is_pending, may_have_begun, no_pod
from parley.sdk.recorded import driver_of_record

PAUSES = Backoff(first=0.1, longest=300.0)
"""Pauses before a claim whose allocation failed is tried again."""


@dataclass(slots=True)
class _Attempt:
    """The attempt to allocate one claim: when it was `begun` (on the event loop's clock, as `pauses`), where it
    failed, and the pauses after failures. It may be lost with the process."""

    nodes: FailedNodes
    begun: float
    pauses: Pauses = field(default_factory=lambda: Pauses(PAUSES))


class ImmediateClaims:
    """Reconciles immediate claims. `queue` has the keys of claims; its workers call `sync` for each."""

    def __init__(
        self,
        state: State,
        allocator: Allocator,
        records: ClaimRecords,
        deallocator: Deallocator,
        queue: WorkQueue[Key],
        candidates: int = DEFAULT_CANDIDATES,
    ) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._allocator = allocator
        self._records = records
        self._deallocator = deallocator
        self._queue = queue
        self._candidates = candidates
        self._attempts: dict[Key, _Attempt] = {}
        self._lines: WaitingLines[Key] = WaitingLines(flow=lambda key: key[0])
        self._accepted: dict[Key, str] = {}
        """UIDs of standalone drivers' claims that count for limits whether they are allocated or not."""

    def resume(self, newer: Mapping[str, ResourceClaim]) -> None:
        """Begin with the restored state. `newer` has claims, by UID, that are newer than those in the cache."""
        self._accepted = count_accepted(self._state, newer)

    def note_verdict(self, claim: ResourceClaim, class_: ResourceClass | None, problem: Problem | None) -> None:
        """Note whether the claim is accepted, or has a problem. One of a standalone driver counts for its class's
        limits from when it is accepted, also with a problem if its driver may have begun by then. It waits in line
        while the limits are reached."""
        key, meta = _key(claim), claim.metadata
        if self._accepted.get(key) not in (None, meta.uid):
            self.stop_counting(key)
        if not is_pending(claim):
            return
        if problem is None and class_ is not None and counts_when_accepted(class_, self._drivers):
            self._ledger.limits.count(meta.uid, class_.metadata.name, meta.namespace, 1)
            self._accepted[key] = meta.uid
        elif problem is None or not _counts_all_the_same(claim, problem.code):
            self.stop_counting(key)
        if problem is not None and problem.code == reasons.LIMIT_REACHED:
            if (following := self._lines.wait(key, problem.topics[1:], problem.topics)) is not None:
                self._queue.add(following)
        elif class_ is not None and class_.driver_name not in self._drivers:
            self._leave_line(key)

    def stop_counting(self, key: Key) -> None:
        """Stop counting the claim, unless it is allocated. One that is being deleted counts until it is gone: its
        driver may have begun to allocate."""
        if (uid := self._accepted.pop(key, None)) is not None:
            self._ledger.stop_counting(uid)

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """Requeue the first claim of each waiting line that a change of the topic, on these nodes only if they are
        given, may help. The first of the other lines are requeued later, to update their conditions."""
        for key in self._wake(topic, nodes).not_helped:
            self._queue.add_after(key, UP_TO_DATE_SECONDS)

    def usage_reduced(self, topic: Topic, nodes: Collection[str] | None) -> None:
        """Requeue the claims that may have room for their reservations now that pods use less of these nodes. Pods
        end all the time, so the others are not requeued."""
        self._wake(topic, nodes)

    def _wake(self, topic: Topic, nodes: Collection[str] | None) -> Woken[Key]:
        """Requeue the first of the lines that the change may help; later, if that was not asked. Returns all."""
        woken = self._lines.split_by_help(topic, nodes, compared=self._ledger.count_reserving(nodes))
        for key in woken.helped:
            self._queue.add(key)
        for key in woken.not_asked:
            self._queue.add_after(key, UP_TO_DATE_SECONDS)
        return woken

    def forget(self, key: Key) -> None:
        """Forget the claim: it is gone or being deleted."""
        self._attempts.pop(key, None)
        self._leave_line(key)

    def move_to_own_line(self, key: Key) -> None:
        """Give a claim whose reconciliation failed a line of its own, for the same topics: others need not wait
        until it succeeds."""
        if (following := self._lines.move(key, ("apart", key))) is not None:
            self._queue.add(following)

    def _leave_line(self, key: Key) -> None:
        if (following := self._lines.leave(key)) is not None:
            self._queue.add(following)

    async def sync(self, claim: ResourceClaim, class_: ResourceClass | None) -> None:
        """Reconcile the claim. `class_` is None while the claim is not accepted, or its mirror is missing."""
        key, holding = _key(claim), self._ledger.get(claim.metadata.uid)
        if holding is not None:
            self._leave_line(key)
            if holding.joinable and not holding.standalone:  # else its record is being cleared, or was
                await self._record(claim, class_, holding)
        elif claim.status.allocation is not None:
            return  # a standalone driver's allocation, or one not in the ledger that is being cleared
        elif class_ is None or class_.driver_name not in self._drivers:
            self._leave_line(key)
        elif not self._is_paused(claim, class_):
            try:
                await self._negotiate(claim, class_)
            except DriverFault as fault:
                await self._back_off(claim, class_, reasons.DRIVER_FAILED, str(fault))

    def _attempt(self, claim: ResourceClaim, class_: ResourceClass | None) -> _Attempt:
        attempt = self._attempts.get(_key(claim))
        if attempt is None or not attempt.nodes.still_apply(claim, class_):
            attempt = self._attempts[_key(claim)] = _Attempt(FailedNodes.none(claim, class_), _now())
        return attempt

    def _is_paused(self, claim: ResourceClaim, class_: ResourceClass) -> bool:
        left = self._attempt(claim, class_).pauses.left(_now())
        if left > 0:
            self._queue.add_after(_key(claim), left)
        return left > 0

    async def _negotiate(self, claim: ResourceClaim, class_: ResourceClass) -> None:
        attempt, pending = self._attempt(claim, class_), without_pod(claim, class_)
        failed = attempt.nodes
        demand = admit(self._state, no_pod(claim.metadata.namespace), (pending,), attempt.begun)
        if isinstance(demand, Blocked):
            await self._wait(claim, demand)
            return
        search = Search(
            SuitableNodes(self._state, class_, claim.metadata.namespace, claim.metadata.uid),
            failed.excluded,
            limit=self._candidates,
            enough=1 + len(failed.failed),
        )
        outcome = survey(self._state, demand, search)
        if not outcome.viable:
            await self._wait(claim, none_viable(self._state, (pending,), demand, search, outcome))
            return
        preferences = demand.scores(outcome.viable, {})
        node = ranked(outcome.viable, preferences, failed.failed)[0]
        await self._allocate(claim, class_, demand, node)

    async def _wait(self, claim: ResourceClaim, blocked: Blocked) -> None:
        problem = blocked.problem
        following = self._lines.wait(_key(claim), blocked.line, problem.topics, helps=blocked.helps)
        if following is not None:
            self._queue.add(following)
        if not problem.transient:
            waits = ConditionUpdate(reasons.ALLOCATED, False, problem.code, problem.message)
            await self._records.set_conditions(claim, waits)

    async def _allocate(self, claim: ResourceClaim, class_: ResourceClass, demand: Demand, node: str) -> None:
        try:
            holding = await self._allocator.allocate_without_pod(claim, class_, demand, node)
        except AllocationFailed as failure:
            permanent = isinstance(failure.__cause__, PermanentError)
            await self._failed(claim, class_, node, str(failure), permanent=permanent)
            return
        except Busy:
            self._queue.retry(_key(claim))
            return
        self._leave_line(_key(claim))
        await self._record(claim, class_, holding)

    async def _failed(
        self, claim: ResourceClaim, class_: ResourceClass | None, node: str, message: str, *, permanent: bool
    ) -> None:
        self._attempt(claim, class_).nodes.add(node, message, permanent=permanent)
        await self._back_off(claim, class_, reasons.ALLOCATION_FAILED, message)

    async def _back_off(self, claim: ResourceClaim, class_: ResourceClass | None, code: str, message: str) -> None:
        """Requeue the claim after a growing pause, and report the failure in its condition."""
        attempt = self._attempt(claim, class_)
        pause = attempt.pauses.begin(_now())
        self._queue.add_after(_key(claim), pause)
        self._leave_line(_key(claim))
        await self._records.set_conditions(claim, ConditionUpdate(reasons.ALLOCATED, False, code, message))

    async def _record(self, claim: ResourceClaim, class_: ResourceClass | None, holding: Holding) -> None:
        """Write the allocation into the claim's status, unless it is there or the cache is older than our write. A
        late write of an earlier leader is cleared first: the API server lets no allocation be changed.

        The write names the state of the claim that it was decided on. So a write of unknown outcome is settled as
        soon as the cache shows a newer state: it has arrived by then, or never will.
        """
        if self._cluster.own_writes.is_stale(claim.metadata):
            return
        recorded = driver_of_record(claim) == holding.driver
        if recorded and _is_shown(claim, holding):
            return
        try:
            if recorded:
                await self._records.clear_unknown_allocation(claim)  # the event of that requeues the claim
            else:
                await self._records.record(claim, holding)
        except (Conflict, Busy):
            self._queue.retry(_key(claim))  # the cache is behind, or another driver has to deallocate first
        except REFUSALS as error:
            await self._deallocator.release_unused(holding)
            message = f"the API server refused the allocation: {error.message}"
            await self._failed(claim, class_, holding.node, message, permanent=False)


def within_limits(
    state: State, newer: Mapping[str, ResourceClaim] = MappingProxyType({}), *, accepted: bool
) -> Iterator[ResourceClaim]:
    """The pending immediate claims that standalone drivers allocate and whose classes have limits: those that are
    accepted, or those that are not."""
    for known in state.cluster.claims():
        claim = newer.get(known.metadata.uid, known)
        class_ = state.cluster.class_(claim.spec.resource_class_name)
        if class_ is None or not counts_when_accepted(class_, state.drivers):
            continue
        pending = claim.spec.allocation_mode == "Immediate" and claim.status.allocation is None
        if pending and awaits_acceptance(claim, class_) != accepted:
            yield claim


def count_accepted(state: State, newer: Mapping[str, ResourceClaim] = MappingProxyType({})) -> dict[Key, str]:
    """Count the immediate claims of standalone drivers for their classes' limits that were accepted. Returns their
    UIDs."""
    found: dict[Key, str] = {}
    others = within_limits(state, newer, accepted=False)
    begun = (claim for claim in others if _counts_all_the_same(claim, _why_not_accepted(claim)))
    for claim in (*within_limits(state, newer, accepted=True), *begun):
        meta = claim.metadata
        state.ledger.limits.count(meta.uid, claim.spec.resource_class_name, meta.namespace, 1)
        found[_key(claim)] = meta.uid
    return found


def _counts_all_the_same(claim: ResourceClaim, code: str) -> bool:
    """Whether a claim that was accepted, and is not any more for that reason, counts as before: its driver may be
    allocating it. Not if the limits themselves are the reason: such claims would keep each other out."""
    return may_have_begun(claim) and code != reasons.LIMIT_REACHED


def _why_not_accepted(claim: ResourceClaim) -> str:
    return next((c.reason for c in claim.status.conditions if c.type == reasons.ACCEPTED), "")


def _is_shown(claim: ResourceClaim, holding: Holding) -> bool:
    """Whether the record shows the holding's allocation, not that of an earlier leader's late write."""
    if holding.record_written.is_known:
        return True
    return claim.status.allocation == Allocation.model_validate(allocation_status(holding)["allocation"])


def _key(claim: ResourceClaim) -> Key:
    return claim.metadata.namespace, claim.metadata.name


def _now() -> float:
    return asyncio.get_running_loop().time()
