"""What Parley writes about claims: allocations and users of mirrors, and records of named claims.

Nothing is decided here. A write whose outcome is unknown is settled by a newer one before anything is freed
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
from parley.control.mirror_status import others, recorded, users
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
from parley.sdk.recorded import NOTHING_ALLOCATED, allocation_record, driver_of_record

T = TypeVar("T")

log = structlog.get_logger(__name__)

_NOTHING: Mapping[str, Any] = {**NOTHING_ALLOCATED, "reservedFor": None, "keptUntil": None}
"""The status of a named claim that holds nothing."""


class Records:
    """Writes what is in the ledger, and clears what leaves it."""

    def __init__(self, client: Client, state: State, clock: Clock, reservation_pods: ReservationPods) -> None:
        self._client = client
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._clock = clock
        self._reservation_pods = reservation_pods
        self._mirrors = MirrorWrites(client, state.cluster)
        self._claims = ClaimWrites(client, state.cluster)
        self.stand_ins = StandIns(client, state.cluster)
        self._without_right: set[str] = set()
        """Drivers whose `status.devices` this account may not write."""

    async def write(self, claims: Sequence[PodClaim]) -> None:
        """Record each claim's holding and its users. Safe to repeat.

        Room that reservation pods hold for new users is handed over first: the scheduler clears an allocation that
        it finds no room for.
        """
        held = [(claim, claim.holding or self._ledger.get(claim.uid)) for claim in claims]
        for node in {
            holding.node for _, holding in held if holding is not None and self._ledger.is_let_in(holding)
        }:
            await self._reservation_pods.hand_over(node)
        await together(self._write(claim, holding) for claim, holding in held if holding is not None)

    async def _write(self, claim: PodClaim, holding: Holding) -> None:
        assert claim.mirror is not None
        async with holding.lock:
            if not holding.pods:
                raise Busy  # its pod has left it meanwhile
            if not holding.joinable or (others(holding, claim.mirror) and not mirrors.is_shareable(claim.mirror)):
                raise Busy  # the scheduler let another pod in: that ours has ended is yet to be seen
            if holding.written is Written.NO:
                holding.lists = self._cluster.lists
            if holding.named:
                await self._write_claim(holding)
            await self._write_mirror(holding, claim.mirror)
            holding.written = Written.YES

    async def _write_mirror(self, holding: Holding, mirror: BuiltinClaim) -> None:
        now, anew = rfc3339(self._clock()), mirror.status.allocation is None
        guarded = anew and holding.named and not holding.shareable and not holding.standalone
        guarded = guarded and holding.driver not in self._without_right
        if anew:
            holding.offered = False
        try:
            await self._mirrors.write(holding, mirror, recorded(holding, mirror, now, guarded=guarded))
        except (Forbidden, Invalid):
            if not guarded:
                raise
            await self._mirrors.write(holding, mirror, recorded(holding, mirror, now, guarded=False))
            self._without_right.add(holding.driver)
            log.warning(
                "the account may not write status.devices of the driver's claims, so that schedulers try pods in "
                "vain that wait for an exclusive claim: give the driver's name in the chart's drivers.embedded",
                driver=holding.driver,
            )

    async def mark_in_use(self, mirror: BuiltinClaim, holding: Holding, pod: Pod) -> None:
        """Schedulers need not try other pods: the bound pod uses the claim, until the allocation is cleared.

        Raises Conflict if the mirror is not as given any more, and Busy if the pod uses the claim no longer.
        """
        async with holding.lock:
            if not holding.joinable or pod.metadata.uid not in holding.pods:
                raise Busy
            devices = in_use.says_in_use(mirror, reference(pod), rfc3339(self._clock()))
            await self._mirrors.write(holding, mirror, {"devices": devices})

    async def _write_claim(self, holding: Holding) -> None:
        if (claim := self._claims.own(holding)) is not None and await self._asks_back(claim, holding):
            raise Busy
        status = {"reservedFor": users(holding)}
        await self._write_record(
            holding, status if holding.standalone else {**allocation_status(holding), **status}
        )

    async def _write_record(
        self, holding: Holding, status: Mapping[str, Any], *, without: Collection[str] = ()
    ) -> None:
        """Write a claim's own record, with the conditions that follow from it in the same write."""
        claim = self._claims.own(holding)
        if claim is not None:
            status = with_conditions(claim, status, rfc3339(self._clock()), without=without)
        await self._claims.write(holding, status)

    async def _asks_back(self, claim: ResourceClaim, holding: Holding) -> bool:
        """Whether the named claim shows the allocation of a standalone driver of which its class was before, and
        which heard of that too late: it is asked to deallocate."""
        if holding.standalone or driver_of_record(claim) in ("", holding.driver):
            return False
        asked = {"reservedFor": None, "deallocationRequested": True}
        try:
            if not claim.status.deallocation_requested:
                await self._claims.patch(claim, with_conditions(claim, asked, rfc3339(self._clock())))
        except NotFound:
            pass  # forced away, with its record
        return True

    async def record(self, claim: ResourceClaim, holding: Holding) -> None:
        """Record what a named claim holds. Raises Conflict if the claim is not as given any more, and Busy if
        another driver has to deallocate first."""
        async with holding.lock:
            if await self._asks_back(claim, holding):
                raise Busy
            status = {**allocation_status(holding), "reservedFor": users(holding)}
            await self._claims.patch(claim, with_conditions(claim, status, rfc3339(self._clock())))
            holding.record_written = Written.YES

    async def set_conditions(
        self, claim: ResourceClaim, *updates: ConditionUpdate, without: Collection[str] = ()
    ) -> bool:
        """Keep conditions of a named claim up to date; returns whether anything had to be written. `without` has
        the types of those that it has no more.

        Raises Conflict if the claim is not as given any more: its driver may write conditions, too.
        """
        status = with_conditions(claim, {}, rfc3339(self._clock()), *updates, without=without)
        if not status:
            return False
        await self._claims.patch(claim, status)
        return True

    async def clear_unknown(self, claim: ResourceClaim) -> None:
        """A named claim's record shows an allocation of which its driver knows nothing: it is void, also if the
        driver has another one for the claim.

        Raises Conflict if the claim is not as given any more.
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

        `drivers` has the driver's name by entry, `units` those that are to be recorded. Nothing is held meanwhile:
        whoever is allocated first, has it.
        """
        now = rfc3339(self._clock())

        def body(mirror: BuiltinClaim, entry: str) -> dict[str, Any]:
            return mirrors.offer_body(mirror, drivers[entry], nodes, now, units=units.get(entry))

        return await together(
            self._mirrors.patch(claim.mirror, {"allocation": body(claim.mirror, claim.entry)})
            for claim in claims
            if claim.mirror is not None
        )

    async def decline(self, claims: Sequence[PodClaim], why: str) -> None:
        """End the offers of these claims: the scheduler takes them back."""
        now = rfc3339(self._clock())
        for claim in claims:
            if claim.mirror is not None and claim.mirror.status.allocation is not None:
                driver = mirrors.driver_of(claim.mirror.status.allocation)
                await self._mirrors.patch(claim.mirror, {"devices": mirrors.declined_body(driver, why, now)})

    async def delete_scheduling(self, scheduling: PodScheduling) -> None:
        """One that an earlier pod of the same name left behind."""
        meta = scheduling.metadata
        try:
            await self._client.delete(POD_SCHEDULINGS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass  # collected meanwhile, which is as good

    async def unreserve(self, holding: Holding, pod: PodReference) -> None:
        """The pod uses the holding no more. With the last pod the mirror's allocation goes, too: otherwise the
        scheduler, not Parley, would say who is next."""
        still = [mirrors.consumer(user) for user in holding.pods.values() if user.uid != pod.uid]
        try:
            if still:
                await self._unreserve_mirror(holding, pod)
            else:
                await self.clear_mirror(holding)
                holding.written = Written.NO
            if holding.named:
                # Nothing is reserved in a record that has yet to show the allocation.
                left = {"reservedFor": still, **_kept(holding)}
                await self._claims.write(holding, left if self.shows_allocation(holding) else {})
        except NotFound:
            pass  # the claim was forced away

    def shows_allocation(self, holding: Holding) -> bool:
        """Whether the claim's own record shows an allocation, as the cache has it."""
        claim = self._cluster.claim((holding.namespace, holding.claim))
        return claim is not None and claim.status.allocation is not None

    def shows_unasked(self, holding: Holding) -> bool:
        """Whether it shows one that nobody asks the standalone driver to give back; False if the cache is behind."""
        claim = self._cluster.claim((holding.namespace, holding.claim))
        if claim is None or claim.status.allocation is None or claim.metadata.deletion_timestamp:
            return False
        return not claim.status.deallocation_requested and not self._cluster.own_writes.unseen(claim.metadata)

    async def is_reserved(self, holding: Holding, pod: PodReference) -> bool:
        """Whether the mirror, no older than our last write, lets the pod use the holding."""
        mirror = await self._mirrors.current(holding)
        return mirror is not None and any(user.uid == pod.uid for user in mirror.status.reserved_for)

    async def _unreserve_mirror(self, holding: Holding, pod: PodReference) -> None:
        """Takes the pod out and changes nothing else: others let pods in meanwhile, or took them out."""
        mirror = await self._mirrors.current(holding)
        if mirror is None:
            return
        try:
            if not holding.written.is_settled:
                mirror = await self._mirrors.settle(holding, mirror)
            if all(user.uid != pod.uid for user in mirror.status.reserved_for):
                return
            others = [u for u in mirror.status.reserved_for if u.uid != pod.uid]
            left = [mirrors.consumer(PodReference(holding.namespace, user.name, user.uid)) for user in others]
            await self._mirrors.write(holding, mirror, {"reservedFor": left})
        except NotFound:
            pass  # deleted by somebody; it is recreated, without users

    async def clear_mirror(self, holding: Holding) -> None:
        """Make sure that the API shows no allocation, and that no write of ours can bring it back.

        Raises Busy if the mirror is reserved for pods that the holding does not know.
        """
        mirror = await self._mirrors.current(holding)
        if mirror is None or not _stands_for(mirror, holding):
            await self._check_unused(holding, mirror)
            return
        if any(user.uid not in holding.pods for user in mirror.status.reserved_for):
            raise Busy  # others let a pod in that is not seen yet, or take one out that is gone
        if mirror.status.allocation is not None:
            await self.clear(mirror, holding)
        elif not holding.written.is_settled:
            settled = await self._mirrors.settle(holding, mirror)
            if settled.status.allocation is not None:
                await self.clear(settled, holding)  # the write arrived after all, since the mirror was read

    async def clear(self, mirror: BuiltinClaim, holding: Holding | None = None) -> None:
        """Remove the mirror's allocation, if it is still as given. Only for what no bound pod uses."""
        try:
            nothing = {"allocation": None, "reservedFor": None, "devices": None}
            if holding is None:
                await self._mirrors.patch(mirror, nothing)
            else:
                await self._mirrors.write(holding, mirror, nothing)
                holding.written = Written.YES  # it was, and is not any more
        except NotFound:
            if holding is not None:
                await self._check_unused(holding)

    async def _check_unused(self, holding: Holding, later: BuiltinClaim | None = None) -> None:
        """A named claim's mirror is gone, and with it the record of whom others let in since it was seen last.
        Raises Busy if such a pod runs, which the cache has yet to show. One that does not run never will: its
        kubelet needs the reservation to begin; and one that came after the mirror of a `later` claim of the name
        uses that."""
        if not holding.named or holding.written is Written.NO:
            return
        for pod in (await self._client.list(PODS, holding.namespace)).items:
            names = (entry.resource_claim_name for entry in pod.spec.resource_claims)
            runs = pod.status.phase == "Running" and holding.may_run_on(pod.spec.node_name)
            known = pod.metadata.uid in holding.pods or (later is not None and mirrors.is_older(later, pod))
            if runs and holding.claim in names and not known:
                raise Busy

    async def clear_claim(self, holding: Holding) -> None:
        """The named claim's record does not show the allocation."""
        claim = self._claims.own(holding)
        if claim is None or not await self._asks_back(claim, holding):
            await self._released(holding, _NOTHING, CONDITION_STRANDED)

    async def keep_without_users(self, holding: Holding) -> None:
        """The claim stays allocated, for the next pod: its nodes have confirmed that it is not prepared there."""
        await self._released(holding, _kept(holding))

    async def record_releasing(self, holding: Holding) -> None:
        """A named claim shows that it is in nobody's use and not free yet, what it waits for and since when."""
        claim = self._claims.own(holding)
        if claim is None:
            return
        try:
            if self._cluster.own_writes.unseen(claim.metadata):
                claim = await self._client.get(CLAIMS, holding.claim, holding.namespace)
            freed = {"reservedFor": None, **_kept(holding)} if claim.status.reserved_for else {}
            status = with_conditions(claim, freed, rfc3339(self._clock()), releasing_condition(holding))
            if status:
                await self._claims.patch(claim, status)
        except NotFound:
            pass  # deleted meanwhile, which is as good

    async def _released(self, holding: Holding, status: Mapping[str, Any], *ended: str) -> None:
        """Write the claim's record: no node has it prepared any more. Conditions of the `ended` types go."""
        if self._claims.own(holding) is None:
            return  # forced away; another may have its name
        try:
            await self._write_record(holding, status, without=(CONDITION_RELEASING, *ended))
        except NotFound:
            pass  # deleted meanwhile, which is as good

    async def request_deallocation(self, holding: Holding) -> None:
        """Ask the standalone driver to deallocate, unless it has done so. Raises NotFound if the claim is gone."""
        claim = await self._claims.current(holding)
        if claim is not None and claim.status.allocation is None:
            return
        await self._write_record(holding, {"reservedFor": None, "deallocationRequested": True})


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all to their end, then raise the first error: what one write does must not cut another short."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def allocation_status(holding: Holding) -> dict[str, Any]:
    """The record of what an embedded driver allocated."""
    allocation = allocation_record(holding.driver, holding.allocation, holding.node, shareable=holding.shareable)
    units = {"units": holding.units} if holding.records_units else {}
    return {"driverName": holding.driver, "allocation": {**allocation, **units}}


def _kept(holding: Holding) -> dict[str, str | None]:
    """How long a named claim stays allocated without users; an earlier deadline goes if its class has none now."""
    return {"keptUntil": rfc3339(holding.kept_until) if holding.kept_until is not None else None}


def _stands_for(mirror: BuiltinClaim, holding: Holding) -> bool:
    """Whether the mirror is one that the holding was, or may have been, recorded in."""
    same = mirrors.owned_by(mirror, holding.uid) if holding.named else mirror.metadata.uid == holding.uid
    return same or mirrors.owner_pod_uid(mirror) in holding.pods
