"""Writes of claims' statuses: allocation and users in mirrors, and the records of named claims.

Nothing is decided here. A write whose outcome is unknown is superseded by a newer one before anything is freed
(`writes`).
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import structlog

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.conditions import ConditionUpdate
from parley.api.models import PodScheduling, ResourceClaim
from parley.api.names import CONDITION_RELEASING, CONDITION_STRANDED
from parley.api.resources import CLAIMS, POD_SCHEDULINGS, PODS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Written
from parley.control.mirror_status import other_users, status_body, users
from parley.control.objects import in_use
from parley.control.objects import mirror as mirrors
from parley.control.objects.pod import reference
from parley.control.release.receipts import releasing_condition
from parley.control.reservation_pods import ReservationPods
from parley.control.stand_ins import StandIns
from parley.control.state import State
from parley.control.writes import ClaimWrites, MirrorWrites
from parley.kube.client import Client, Forbidden, Invalid, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk import PodReference
from parley.sdk.claim_conditions import with_conditions
from parley.sdk.recorded import NOTHING_ALLOCATED, allocation_record, driver_of_record, must_be_deallocated

T = TypeVar("T")

log = structlog.get_logger(__name__)

_NOTHING: Mapping[str, Any] = {**NOTHING_ALLOCATED, "reservedFor": None, "keptUntil": None}
"""The status of a named claim that is not allocated."""


class Records:
    """Writes the ledger's holdings to the API, and clears there what is dropped from the ledger."""

    def __init__(self, client: Client, state: State, clock: Clock, reservation_pods: ReservationPods) -> None:
        self._client = client
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._clock = clock
        self._reservation_pods = reservation_pods
        self._mirrors = MirrorWrites(client, state.cluster)
        self._claims = ClaimWrites(client, state.cluster)
        self.stand_ins = StandIns(client, state.cluster)
        self._forbidden_devices: set[str] = set()
        """Drivers whose `status.devices` this account may not write."""

    async def write(self, claims: Sequence[PodClaim]) -> None:
        """Record each claim's holding and its users: those that others use (`Holding.uses`) before these, also
        claims of other pods. Safe to repeat.

        The room that reservation pods hold for new users is handed over first, because the scheduler clears an
        allocation on a node where it finds no room for the pod.
        """
        found = [(claim, claim.holding or self._ledger.get(claim.uid)) for claim in claims]
        held = {holding.uid: (claim, holding) for claim, holding in found if holding is not None}
        displaces = self._ledger.displaces_reservation_pods
        for node in {holding.node for _, holding in held.values() if displaces(holding)}:
            await self._reservation_pods.hand_over(node)
        for uid in {uid for _, holding in held.values() for uid in holding.uses} - held.keys():
            await self._record_used(uid)
        while held:
            ready = [uid for uid, (_, holding) in held.items() if held.keys().isdisjoint(holding.uses)]
            await run_all([self._write(*held.pop(uid)) for uid in ready or [*held]])

    async def _record_used(self, uid: str) -> None:
        """Record a claim that others use, if the writes for its own pods have failed so far."""
        used = self._ledger.get(uid)
        if used is None or not used.joinable or self._claims.own(used) is None:
            return
        async with used.lock:
            if not (used.written.is_known or used.record_written.is_known or self.shows_allocation(used)):
                await self._write_claim(used)

    async def _write(self, claim: PodClaim, holding: Holding) -> None:
        assert claim.mirror is not None
        async with holding.lock:
            if not holding.pods:
                raise Busy  # its pod does not use it any more
            if not holding.joinable or (
                other_users(holding, claim.mirror) and not mirrors.is_shareable(claim.mirror)
            ):
                raise Busy  # the scheduler reserved it for another pod: the cache has yet to show that ours ended
            if holding.written is Written.NO:
                holding.lists_read = self._cluster.lists
            if holding.named:
                await self._write_claim(holding)
            await self._write_mirror(holding, claim.mirror)
            holding.written = Written.YES

    async def _write_mirror(self, holding: Holding, mirror: BuiltinClaim) -> None:
        now, is_new = rfc3339(self._clock()), mirror.status.allocation is None
        guarded = is_new and holding.named and not holding.shareable and not holding.standalone
        guarded = guarded and holding.driver not in self._forbidden_devices
        if is_new:
            holding.offered = False
        try:
            await self._mirrors.write(holding, mirror, status_body(holding, mirror, now, guarded=guarded))
        except (Forbidden, Invalid):
            if not guarded:
                raise
            await self._mirrors.write(holding, mirror, status_body(holding, mirror, now, guarded=False))
            self._forbidden_devices.add(holding.driver)
            log.warning(
                "the account may not write status.devices of the driver's claims, so that schedulers try pods in "
                "vain that wait for an exclusive claim: give the driver's name in the chart's drivers.embedded",
                driver=holding.driver,
            )

    async def mark_in_use(self, mirror: BuiltinClaim, holding: Holding, pod: Pod) -> None:
        """Make the claim unavailable to schedulers, as the bound pod uses it, until the allocation is cleared.

        Raises Conflict if the mirror has changed since, and Busy if the pod does not use the claim any more.
        """
        async with holding.lock:
            if not holding.joinable or pod.metadata.uid not in holding.pods:
                raise Busy
            devices = in_use.in_use_devices(mirror, reference(pod), rfc3339(self._clock()))
            await self._mirrors.write(holding, mirror, {"devices": devices})

    async def _write_claim(self, holding: Holding) -> None:
        if (claim := self._claims.own(holding)) is not None and (
            self._is_taken_back(claim, holding) or await self._returns_to_former(claim, holding)
        ):
            raise Busy
        status = {"reservedFor": users(holding)}
        await self._write_record(
            holding, status if holding.standalone else {**allocation_status(holding), **status}
        )

    def _is_taken_back(self, claim: ResourceClaim, holding: Holding) -> bool:
        """Whether the standalone driver deallocates the claim, which was deleted before any of its pods was
        recorded as its user. None of them may begin to use it then."""
        if not holding.standalone or not must_be_deallocated(claim):
            return False
        pods = [self._cluster.pod_with_uid(user) for user in holding.pods.values()]
        return all(pod is None or not pod.spec.node_name for pod in pods)

    async def _write_record(
        self,
        holding: Holding,
        status: Mapping[str, Any],
        *,
        without: Collection[str] = (),
        decided_on: ResourceClaim | None = None,
    ) -> None:
        """Write a claim's own record, with the conditions that follow from it in the same write; `decided_on` is
        the claim as it was when that was decided, None the cache's."""
        claim = decided_on or self._claims.own(holding)
        if claim is not None and claim.metadata.uid == holding.uid:
            status = with_conditions(claim, status, rfc3339(self._clock()), without=without)
        await self._claims.write(holding, status, decided_on)

    async def _returns_to_former(self, claim: ResourceClaim, holding: Holding) -> bool:
        """Whether the named claim records an allocation of the driver that its class had before. A standalone one
        saw the class's change too late, and is asked to deallocate. An embedded one's is a late write of a former
        leader, and is cleared."""
        former = driver_of_record(claim)
        if holding.standalone or former in ("", holding.driver):
            return False
        requested = {"reservedFor": None, "deallocationRequested": True}
        try:
            if former in self._drivers:
                await self.clear_unknown_allocation(claim)
            elif not claim.status.deallocation_requested:
                status = with_conditions(claim, requested, rfc3339(self._clock()))
                await self._claims.patch_record(holding, claim, status)
        except NotFound:
            pass  # removed by force, with its record
        return True

    async def record(self, claim: ResourceClaim, holding: Holding) -> None:
        """Record a named claim's allocation and users. Raises Conflict if the claim has changed since, and Busy if
        another driver has to deallocate first."""
        async with holding.lock:
            if await self._returns_to_former(claim, holding):
                raise Busy
            status = {**allocation_status(holding), "reservedFor": users(holding)}
            status = with_conditions(claim, status, rfc3339(self._clock()))
            await self._claims.patch_record(holding, claim, status)
            holding.record_written = Written.YES if holding.record_written.is_settled else Written.UNSETTLED

    async def set_conditions(
        self, claim: ResourceClaim, *updates: ConditionUpdate, without: Collection[str] = ()
    ) -> bool:
        """Update conditions of a named claim, and remove those of the types `without`. Returns whether a write was
        needed.

        Raises Conflict if the claim has changed since: its driver may write conditions, too.
        """
        status = with_conditions(claim, {}, rfc3339(self._clock()), *updates, without=without)
        if not status:
            return False
        await self._claims.patch(claim, status)
        return True

    async def clear_unknown_allocation(self, claim: ResourceClaim) -> None:
        """Clear an allocation in a named claim's record that the claim's driver does not have, even if the driver
        has another one for the claim.

        Raises Conflict if the claim has changed since.
        """
        now = rfc3339(self._clock())
        await self._claims.patch(claim, with_conditions(claim, _NOTHING, now, without=(CONDITION_STRANDED,)))

    async def offer(
        self,
        claims: Sequence[PodClaim],
        drivers: Mapping[str, str],
        nodes: Sequence[str],
        units: Mapping[str, int] = MappingProxyType({}),
    ) -> list[BuiltinClaim]:
        """Offer nodes to the scheduler for generated claims; returns the mirrors as written.

        `drivers` has the driver's name by entry, `units` the units to record. An offer holds nothing: its devices
        go to the pod that is allocated first.
        """
        now = rfc3339(self._clock())

        def body(mirror: BuiltinClaim, entry: str) -> dict[str, Any]:
            return mirrors.offer_body(mirror, drivers[entry], nodes, now, units=units.get(entry))

        return await run_all(
            self._mirrors.patch(claim.mirror, {"allocation": body(claim.mirror, claim.entry)})
            for claim in claims
            if claim.mirror is not None
        )

    async def decline(self, claims: Sequence[PodClaim], why: str) -> None:
        """Make the scheduler withdraw the offers for these claims, by their binding failure condition."""
        now = rfc3339(self._clock())
        for claim in claims:
            if claim.mirror is not None and claim.mirror.status.allocation is not None:
                driver = mirrors.driver_of(claim.mirror.status.allocation)
                await self._mirrors.patch(claim.mirror, {"devices": mirrors.declined_body(driver, why, now)})

    async def delete_scheduling(self, scheduling: PodScheduling) -> None:
        """Delete the PodScheduling of an earlier pod of the same name."""
        meta = scheduling.metadata
        try:
            await self._client.delete(POD_SCHEDULINGS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass  # the garbage collector was faster

    async def unreserve(self, holding: Holding, pod: PodReference) -> None:
        """Remove the pod from the users in the API. With the last pod the mirror's allocation is cleared, too:
        otherwise the scheduler, not Parley, would choose the next pod."""
        remaining = [mirrors.consumer(user) for user in holding.pods.values() if user.uid != pod.uid]
        try:
            if remaining:
                await self._unreserve_mirror(holding, pod)
            else:
                await self.clear_mirror(holding)
                holding.written = Written.NO
            if holding.named:
                # Nothing is reserved in a record that has yet to show the allocation.
                status = {"reservedFor": remaining, **_kept_until(holding)}
                await self._claims.write(holding, status if self.shows_allocation(holding) else {})
        except NotFound:
            pass  # the claim was removed by force

    def shows_allocation(self, holding: Holding) -> bool:
        """Whether the claim's own record shows an allocation, according to the cache."""
        claim = self._cluster.claim((holding.namespace, holding.claim))
        return claim is not None and claim.status.allocation is not None

    def shows_unrequested_allocation(self, holding: Holding) -> bool:
        """Whether the claim's record shows an allocation that its driver is not asked to deallocate. False while
        the cache lacks our latest write."""
        claim = self._cluster.claim((holding.namespace, holding.claim))
        if claim is None or claim.status.allocation is None or claim.metadata.deletion_timestamp:
            return False
        return not claim.status.deallocation_requested and not self._cluster.own_writes.is_stale(claim.metadata)

    async def is_reserved(self, holding: Holding, pod: PodReference) -> bool:
        """Whether the mirror, no older than our last write of it, is reserved for the pod."""
        mirror = await self._mirrors.current(holding)
        return mirror is not None and any(user.uid == pod.uid for user in mirror.status.reserved_for)

    async def _unreserve_mirror(self, holding: Holding, pod: PodReference) -> None:
        """Remove the pod from the mirror's reservations and change nothing else: others add and remove pods."""
        mirror = await self._mirrors.current(holding)
        if mirror is None:
            return
        try:
            if not holding.written.is_settled:
                mirror = await self._mirrors.settle(holding, mirror)
            if all(user.uid != pod.uid for user in mirror.status.reserved_for):
                return
            others = [u for u in mirror.status.reserved_for if u.uid != pod.uid]
            remaining = [mirrors.consumer(PodReference(holding.namespace, user.name, user.uid)) for user in others]
            await self._mirrors.write(holding, mirror, {"reservedFor": remaining})
        except NotFound:
            pass  # somebody deleted it; it is recreated without users

    async def clear_mirror(self, holding: Holding) -> None:
        """Clear the mirror's allocation, so that no write of ours that is still to arrive can bring it back.

        Raises Busy if the mirror is reserved for pods that are not users of the holding.
        """
        mirror = await self._mirrors.current(holding)
        if mirror is None or not _stands_for(mirror, holding):
            await self._check_unused(holding, mirror)
            return
        if any(user.uid not in holding.pods for user in mirror.status.reserved_for):
            raise Busy  # of a pod that the cache has yet to show, or of one that is gone: it is being removed
        if mirror.status.allocation is not None:
            await self.clear(mirror, holding)
        elif not holding.written.is_settled:
            settled = await self._mirrors.settle(holding, mirror)
            if settled.status.allocation is not None:
                await self.clear(settled, holding)  # the write arrived after the mirror was read

    async def clear(self, mirror: BuiltinClaim, holding: Holding | None = None) -> None:
        """Remove the mirror's allocation, if it has not changed since. Only for claims that no bound pod uses."""
        try:
            nothing = {"allocation": None, "reservedFor": None, "devices": None}
            if holding is None:
                await self._mirrors.patch(mirror, nothing)
            else:
                await self._mirrors.write(holding, mirror, nothing)
                holding.written = Written.YES  # the mirror showed it until now
        except NotFound:
            if holding is not None:
                await self._check_unused(holding)

    async def _check_unused(self, holding: Holding, later: BuiltinClaim | None = None) -> None:
        """Check that no pod uses a named claim whose mirror is gone, and with it the reservations that a scheduler
        made since the cache saw it last.

        Raises Busy if a pod that the cache has yet to show runs with it. A pod that does not run yet never will:
        its kubelet needs the reservation. A pod that is newer than the mirror of a `later` claim of the name uses
        that.
        """
        if not holding.named or holding.written is Written.NO:
            return
        for pod in (await self._client.list(PODS, holding.namespace)).items:
            names = (entry.resource_claim_name for entry in pod.spec.resource_claims)
            runs = pod.status.phase == "Running" and holding.may_run_on(pod.spec.node_name)
            known = pod.metadata.uid in holding.pods or (later is not None and mirrors.is_older(later, pod))
            if runs and holding.claim in names and not known:
                raise Busy

    async def clear_claim(self, holding: Holding) -> None:
        """Clear the allocation in the named claim's record."""
        claim = self._claims.own(holding)
        if claim is None or not await self._returns_to_former(claim, holding):
            await self._write_released(holding, _NOTHING, CONDITION_STRANDED)

    async def keep_without_users(self, holding: Holding) -> None:
        """Record that the claim stays allocated without users, and that its nodes do not have it prepared."""
        await self._write_released(holding, _kept_until(holding))

    async def record_releasing(self, holding: Holding) -> None:
        """Record that a named claim has no users and is not free yet, with what it waits for and since when."""
        claim = self._claims.own(holding)
        if claim is None:
            return
        try:
            if self._cluster.own_writes.is_stale(claim.metadata):
                claim = await self._client.get(CLAIMS, holding.claim, holding.namespace)
            freed = {"reservedFor": None, **_kept_until(holding)} if claim.status.reserved_for else {}
            status = with_conditions(claim, freed, rfc3339(self._clock()), releasing_condition(holding))
            if status:
                await self._claims.patch_record(holding, claim, status)
        except NotFound:
            pass  # deleted meanwhile

    async def _write_released(self, holding: Holding, status: Mapping[str, Any], *ended: str) -> None:
        """Write the claim's record when no node has it prepared any more, and remove conditions of these types."""
        if self._claims.own(holding) is None:
            return  # removed by force; another claim may have its name
        try:
            await self._write_record(holding, status, without=(CONDITION_RELEASING, *ended))
        except NotFound:
            pass  # deleted meanwhile

    async def request_deallocation(self, holding: Holding) -> bool:
        """Ask the standalone driver to deallocate, unless it has done so; returns whether that was written. Raises
        NotFound if the claim is gone, and Conflict if it has changed: the driver may have allocated it anew."""
        claim = await self._claims.current(holding)
        if claim is not None and claim.status.allocation is None:
            return False
        requested = {"reservedFor": None, "deallocationRequested": True}
        await self._write_record(holding, requested, decided_on=claim)
        return True


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all to their end, then raise the first error: a failed write must not cancel the others."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def allocation_status(holding: Holding) -> dict[str, Any]:
    """The status of a named claim that records the allocation of an embedded driver."""
    allocation = allocation_record(holding.driver, holding.allocation, holding.node, shareable=holding.shareable)
    units = {"units": holding.units} if holding.records_units else {}
    return {"driverName": holding.driver, "allocation": {**allocation, **units}}


def _kept_until(holding: Holding) -> dict[str, str | None]:
    """Until when a named claim stays allocated without users; None removes a deadline that is recorded."""
    return {"keptUntil": rfc3339(holding.kept_until) if holding.kept_until is not None else None}


def _stands_for(mirror: BuiltinClaim, holding: Holding) -> bool:
    """Whether the holding was, or may have been, recorded in this mirror, which may have lost its owner since."""
    if mirrors.stands_for_another(mirror, holding.uid):
        return False
    if mirror.metadata.uid in holding.shown_by:
        return True
    same = mirrors.owned_by(mirror, holding.uid) if holding.named else mirror.metadata.uid == holding.uid
    return same or mirrors.owner_pod_uid(mirror) in holding.pods
