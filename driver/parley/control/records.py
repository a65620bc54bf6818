"""Writes of what the ledger holds: allocation and users in mirrors, and for named claims in their records, too.

Nothing is decided here. A write whose outcome is unknown is superseded by a newer one before anything is freed
(`writes`).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import structlog

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import PodScheduling, ResourceClaim
from parley.api.resources import POD_SCHEDULINGS, PODS
from parley.control.allocation import Busy
from parley.control.claim_records import ClaimRecords
from parley.control.claims.named import is_outdated
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Written
from parley.control.mirror_status import other_users, status_body
from parley.control.objects import in_use
from parley.control.objects import mirror as mirrors
from parley.control.objects.pod import reference
from parley.control.reservation_pods import ReservationPods
from parley.control.stand_ins import StandIns
from parley.control.state import State
from parley.control.writes import MirrorWrites
from parley.kube.client import Client, Forbidden, Invalid, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk import PodReference

T = TypeVar("T")

log = structlog.get_logger(__name__)


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
        self.claims = ClaimRecords(client, state, clock)
        self.stand_ins = StandIns(client, state.cluster)
        self._forbidden_devices: set[str] = set()
        """Drivers whose `status.devices` this account may not write."""

    async def write(self, claims: Sequence[PodClaim], pod: Pod | None = None) -> None:
        """Record each claim's holding and its users, of which `pod` is one: those that others use (`Holding.uses`)
        before these, also claims of other pods. Safe to repeat.

        The room that reservation pods hold for new users is handed over first, because the scheduler clears an
        allocation on a node where it finds no room for the pod.
        """
        found = [(claim, claim.holding or self._ledger.get(claim.uid)) for claim in claims]
        held = {holding.uid: (claim, holding) for claim, holding in found if holding is not None}
        displaces = self._ledger.displaces_reservation_pods
        for node in {holding.node for _, holding in held.values() if displaces(holding)}:
            await self._reservation_pods.hand_over(node, pod)
        for uid in {uid for _, holding in held.values() for uid in holding.uses} - held.keys():
            await self.claims.write_used(uid)
        while held:
            ready = [uid for uid, (_, holding) in held.items() if held.keys().isdisjoint(holding.uses)]
            await run_all([self._write(*held.pop(uid)) for uid in ready or [*held]])

    async def _write(self, claim: PodClaim, holding: Holding) -> None:
        assert claim.mirror is not None
        async with holding.lock:
            if not holding.pods:
                raise Busy  # its pod does not use it any more
            if not holding.joinable or (
                other_users(holding, claim.mirror) and not mirrors.is_shareable(claim.mirror)
            ):
                raise Busy  # the scheduler reserved it for another pod: the cache has yet to show that ours ended
            if claim.claim is not None and self._is_outdated(claim.claim, claim.mirror, holding):
                raise Busy  # schedulers would share it although it is exclusive; the mirror is recreated first
            if holding.written is Written.NO:
                holding.lists_read = self._cluster.lists
            if holding.named:
                await self.claims.write(holding)
            await self._write_mirror(holding, claim.mirror)
            holding.written = Written.YES

    def _is_outdated(self, claim: ResourceClaim, mirror: BuiltinClaim, holding: Holding) -> bool:
        """Whether the claim's class was changed between shareable and exclusive while a driver allocated. Bound
        pods keep the allocation."""
        pods = map(self._cluster.pod_with_uid, holding.pods.values())
        bound = any(pod is not None and pod.spec.node_name for pod in pods)
        return not bound and is_outdated(claim, mirror, self._cluster.class_(holding.class_name), holding)

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
                await self.claims.unreserve(holding, remaining)
        except NotFound:
            pass  # the claim was removed by force

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
        """Clear the allocation in the record of a named claim."""
        if holding.named:
            await self.claims.clear(holding)


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all to their end, then raise the first error: a failed write must not cancel the others."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _stands_for(mirror: BuiltinClaim, holding: Holding) -> bool:
    """Whether the holding was, or may have been, recorded in this mirror, which may have lost its owner since."""
    if mirrors.stands_for_another(mirror, holding.uid):
        return False
    if mirror.metadata.uid in holding.shown_by:
        return True
    same = mirrors.owned_by(mirror, holding.uid) if holding.named else mirror.metadata.uid == holding.uid
    return same or mirrors.owner_pod_uid(mirror) in holding.pods
