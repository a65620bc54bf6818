"""Lets drivers allocate on the selected node, records it in the API, and gives it back.

All or nothing: if one driver fails, what the others allocated for this attempt is given back. A holding enters
the ledger before its first write and leaves it after the API has let go of it, so nothing is handed to another
pod while a record of it may stand. A write whose outcome is unknown is settled by a newer write (a changed
resourceVersion makes the old one fail) before the devices are free again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import ResourceClaim
from parley.api.names import GROUP
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.control import mirror as mirrors
from parley.control import standin
from parley.control.clock import Clock, rfc3339
from parley.control.cluster import Cluster, reference
from parley.control.gathering import PodClaim
from parley.control.ledger import Holding, Ledger
from parley.kube.client import AlreadyExists, Client, NotFound, OutcomeUnknown
from parley.sdk import Allocation, PodReference, Request
from parley.sdk.embedded import EmbeddedDriver

T = TypeVar("T")

ALLOCATE_SECONDS = 30.0
"""So long a driver in the controller may take: it keeps a worker from other pods."""

Requests = Mapping[str, Request[Any, Any]]
"""One request per driver, by the driver's name."""


class AllocationFailed(Exception):
    """Raised when a driver could not allocate; nothing is held for this attempt then."""

    def __init__(self, driver: str, node: str, cause: Exception) -> None:
        super().__init__(f"driver {driver} could not allocate on node {node}: {cause}")


class Busy(Exception):
    """Raised when one of the claims is being allocated for another pod, or given back, at this moment."""


class Allocator:
    """Allocates, records, gives back. `freed` is called with each holding that came free."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        ledger: Ledger,
        drivers: Mapping[str, EmbeddedDriver],
        clock: Clock,
        freed: Callable[[Holding], None],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._drivers = drivers
        self._clock = clock
        self._freed = freed
        self._allocating: set[str] = set()

    async def allocate(
        self, pod: Pod, claims: Sequence[PodClaim], requests: Requests, node: str, *, offered: bool
    ) -> None:
        """Drivers allocate on the node; the ledger has it afterwards, the API not yet.

        Raises AllocationFailed or Busy, with nothing held.
        """
        uids = {claim.uid for claim in claims}
        if uids & self._allocating:
            raise Busy
        self._allocating |= uids
        try:
            await self._allocate(pod, claims, requests, node, offered=offered)
        finally:
            self._allocating -= uids

    async def _allocate(
        self, pod: Pod, claims: Sequence[PodClaim], requests: Requests, node: str, *, offered: bool
    ) -> None:
        results: dict[str, tuple[str, Allocation]] = {}
        units = self._count(pod, claims, requests)
        for name, request in requests.items():
            try:
                allocations = await self._ask(name, request, node)
            except Exception as error:
                await self._undo(requests, results)
                for claim in claims:
                    self._ledger.limits.forget(claim.uid)
                raise AllocationFailed(name, node, error) from error
            results.update({entry: (name, allocation) for entry, allocation in allocations.items()})
        for claim in claims:
            driver, allocation = results[claim.entry]
            holding = _holding(pod, claim, driver, node, allocation, offered=offered)
            holding.units = units[claim.entry]
            self._ledger.add(holding)

    def _count(self, pod: Pod, claims: Sequence[PodClaim], requests: Requests) -> dict[str, int]:
        units = {
            claim.name: self._drivers[name].units(claim)
            for name, request in requests.items()
            for claim in request.claims
        }
        for claim in claims:
            assert claim.class_ is not None
            self._ledger.limits.count(
                claim.uid, claim.class_.metadata.name, pod.metadata.namespace, units[claim.entry]
            )
        return units

    async def _ask(self, driver: str, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        """Raises TimeoutError if the driver is no quick one; nothing is held then."""
        try:
            async with asyncio.timeout(ALLOCATE_SECONDS):
                return await self._drivers[driver].allocate(request, node)
        except TimeoutError as error:
            for claim in request.claims:
                await self._drivers[driver].deallocate(claim.uid)
            raise TimeoutError(
                f"no result within {ALLOCATE_SECONDS:g} s: a driver that takes longer must be asynchronous"
            ) from error

    async def _undo(self, requests: Requests, results: Mapping[str, tuple[str, Allocation]]) -> None:
        for entry, (driver, _) in results.items():
            uid = next(claim.uid for claim in requests[driver].claims if claim.name == entry)
            await self._drivers[driver].deallocate(uid)

    def join(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """The pod uses what is allocated already. Raises Busy if that is being given back."""
        holdings = [claim.holding for claim in claims if claim.holding is not None]
        if any(holding.leaving for holding in holdings):
            raise Busy
        for holding in holdings:
            self._ledger.join(holding, reference(pod))

    async def write(self, claims: Sequence[PodClaim]) -> None:
        """Record each claim's holding and its users. Safe to repeat."""
        held = [(claim, claim.holding or self._ledger.get(claim.uid)) for claim in claims]
        await together(self._write(claim, holding) for claim, holding in held if holding is not None)

    async def _write(self, claim: PodClaim, holding: Holding) -> None:
        assert claim.mirror is not None
        async with holding.lock:
            if holding.leaving:
                raise Busy
            if holding.named:
                await self._write_claim(holding)
            body = self._status(claim.mirror, holding)
            try:
                written = await self._patch_mirror(claim.mirror, {"status": body})
            except OutcomeUnknown:
                holding.uncertain = True
                raise
            holding.version = int(written.metadata.resource_version)
            holding.uncertain = False

    def _status(self, mirror: BuiltinClaim, holding: Holding) -> dict[str, Any]:
        body: dict[str, Any] = {"reservedFor": _users(holding)}
        now = rfc3339(self._clock())
        if mirror.status.allocation is None:
            holding.offered = False
            body["allocation"] = mirrors.allocation_body(
                mirror, holding.driver, holding.allocation, holding.nodes, now, node_part=holding.node_part
            )
        elif holding.offered:
            body["devices"] = mirrors.found_body(holding.driver, holding.allocation, holding.node, now)
        return body

    async def _write_claim(self, holding: Holding) -> None:
        if holding.outside:
            await self._patch_claim(holding, {"reservedFor": _users(holding), "state": _state(holding)})
            return
        handle = {
            "driverName": holding.driver,
            "devices": [{"pool": d.pool, "device": d.device} for d in holding.allocation.devices],
            "data": dict(holding.allocation.data),
        }
        allocation: dict[str, Any] = {"handles": [handle], "shareable": holding.shareable}
        if holding.nodes is not None:
            allocation["availableOnNodes"] = mirrors.node_selector(holding.nodes)
        status = {
            "driverName": holding.driver,
            "allocation": allocation,
            "reservedFor": _users(holding),
            "state": _state(holding),
        }
        await self._patch_claim(holding, status)

    async def offer(
        self, claims: Sequence[PodClaim], drivers: Mapping[str, str], nodes: Sequence[str]
    ) -> list[BuiltinClaim]:
        """Offer nodes to the scheduler for generated claims; returns the mirrors as written.

        `drivers` has the driver's name by entry. Nothing is held meanwhile: whoever is allocated first, has it.
        """
        now = rfc3339(self._clock())
        return await together(
            self._patch_mirror(
                claim.mirror,
                {"status": {"allocation": mirrors.offer_body(claim.mirror, drivers[claim.entry], nodes, now)}},
            )
            for claim in claims
            if claim.mirror is not None
        )

    async def decline(self, claims: Sequence[PodClaim], why: str) -> None:
        """End the offers of these claims: the scheduler takes them back."""
        now = rfc3339(self._clock())
        for claim in claims:
            if claim.mirror is not None and claim.mirror.status.allocation is not None:
                driver = mirrors.driver_of(claim.mirror.status.allocation)
                await self._patch_mirror(
                    claim.mirror, {"status": {"devices": mirrors.declined_body(driver, why, now)}}
                )

    async def give_back(self, pod: PodReference, holdings: Sequence[Holding], *, departed: bool) -> None:
        """The pod lets go of the holdings; what nobody else uses is free afterwards.

        `departed`: the pod is done or gone, and its generated claims vanish by themselves, which saves a write.
        """
        for holding in holdings:
            await self._leave(holding, pod, departed=departed)

    async def _leave(self, holding: Holding, pod: PodReference, *, departed: bool) -> None:
        async with holding.lock:
            if pod.uid not in holding.pods:
                return
            if len(holding.pods) > 1 or holding.immediate:
                self._ledger.leave(holding, pod)
                await self._unreserve(holding)
            else:
                await self._end(holding, departed=departed)
        self._freed(holding)

    async def give_up(self, holding: Holding) -> None:
        """Nobody uses the holding: it is recorded without users."""
        async with holding.lock:
            await self._end(holding, departed=False)
        self._freed(holding)

    async def _end(self, holding: Holding, *, departed: bool) -> None:
        """The API lets go of it first, then driver and ledger. If that fails the holding is as good as before."""
        holding.leaving = True
        try:
            if holding.named or not departed:
                await self._clear_mirror(holding)
            if holding.outside:
                gone = await self._ask_back(holding, departed=departed)
            else:
                await self._take_back(holding)
                gone = True
        except BaseException:
            holding.leaving = False
            raise
        if gone:
            self._ledger.drop(holding)
        else:
            self._ledger.release(holding)

    async def _take_back(self, holding: Holding) -> None:
        if holding.named:
            await self._clear_claim(holding)
        await self._drivers[holding.driver].deallocate(holding.uid)

    async def _ask_back(self, holding: Holding, *, departed: bool) -> bool:
        """Ask the driver outside to take the allocation back; whether nobody needs to wait until it did.

        The stand-in of a pod that is gone goes with it, which tells the driver at no write of ours.
        """
        if holding.named or not departed:
            status = {"reservedFor": None, "deallocationRequested": True, "state": "deallocating"}
            try:
                await self._patch_claim(holding, status)
            except NotFound:
                return True
            return False
        if any(self._cluster.pod((pod.namespace, pod.name)) is not None for pod in holding.pods.values()):
            await self._delete_stand_in(holding.namespace, holding.claim)
        return True

    async def pod_ended(self, pod: PodReference) -> None:
        """The pod has ended, its object stays: its stand-ins go now, with what drivers still do for them."""
        for claim in self._cluster.stand_ins(pod.uid):
            if not claim.metadata.deletion_timestamp:
                await self._delete_stand_in(claim.metadata.namespace, claim.metadata.name)

    async def _delete_stand_in(self, namespace: str, name: str) -> None:
        try:
            await self._client.delete(CLAIMS, name, namespace)
        except NotFound:
            pass  # deleted meanwhile, which is as good

    async def stand_in(self, pod: Pod, claim: PodClaim) -> None:
        """Make the claim in which a driver outside records what it allocates for a generated claim."""
        assert claim.asked is not None
        body = standin.stand_in(pod, claim.entry, claim.name, claim.asked)
        try:
            await self._client.create(CLAIMS, body, pod.metadata.namespace)
        except AlreadyExists:
            pass  # not in the cache yet; its arrival calls again

    def record_changed(self, claim: ResourceClaim, *, gone: bool) -> None:
        """A Parley claim is as its driver left it: what is not allocated any more and nobody uses is free."""
        holding = self._ledger.of_claim(claim.metadata.namespace, claim.metadata.name)
        if holding is None or not holding.outside or holding.pods:
            return
        if gone or claim.status.allocation is None:
            self._ledger.drop(holding)
            self._freed(holding)

    async def _unreserve(self, holding: Holding) -> None:
        users = {"reservedFor": _users(holding)}
        try:
            await self._client.patch(
                BUILTIN_CLAIMS, holding.claim, {"status": users}, holding.namespace, subresource="status"
            )
        except NotFound:
            pass  # deleted by somebody; it is made anew, without users
        await self._patch_claim(holding, {**users, "state": _state(holding)})

    async def _clear_mirror(self, holding: Holding) -> None:
        """Make sure that the API shows no allocation, and that no write of ours can bring it back."""
        key = (holding.namespace, holding.claim)
        mirror = self._cluster.mirror(key)
        if holding.uncertain:
            mirror = await self._live_mirror(*key)
        if mirror is None or not (holding.named or mirror.metadata.uid == holding.uid):
            return
        if mirror.status.allocation is not None and not mirror.metadata.deletion_timestamp:
            await self.clear(mirror)
        elif holding.uncertain:
            await self._client.patch(
                BUILTIN_CLAIMS,
                mirror.metadata.name,
                {"metadata": {"annotations": {f"{GROUP}/settled": rfc3339(self._clock())}}},
                mirror.metadata.namespace,
            )

    async def clear(self, mirror: BuiltinClaim) -> None:
        """Remove the mirror's allocation. Only for what no bound pod uses."""
        try:
            await self._patch_mirror(
                mirror, {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            )
        except NotFound:
            pass  # deleted meanwhile, which is as good

    async def _clear_claim(self, holding: Holding) -> None:
        status = {
            "driverName": None,
            "allocation": None,
            "reservedFor": None,
            "deallocationRequested": None,
            "state": "pending",
        }
        try:
            await self._patch_claim(holding, status)
        except NotFound:
            pass  # deleted meanwhile, which is as good

    async def _patch_claim(self, holding: Holding, status: dict[str, Any]) -> None:
        body = {"status": status}
        await self._client.patch(CLAIMS, holding.claim, body, holding.namespace, subresource="status")

    async def _live_mirror(self, namespace: str, name: str) -> BuiltinClaim | None:
        try:
            return await self._client.get(BUILTIN_CLAIMS, name, namespace)
        except NotFound:
            return None

    async def _patch_mirror(self, mirror: BuiltinClaim, body: dict[str, Any]) -> BuiltinClaim:
        meta = mirror.metadata
        precondition = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}
        return await self._client.patch(
            BUILTIN_CLAIMS, meta.name, {**precondition, **body}, meta.namespace, subresource="status"
        )


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all to their end, then raise the first error: what one write does must not cut another short."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _state(holding: Holding) -> str:
    return "allocated,reserved" if holding.pods else "allocated"


def _users(holding: Holding) -> list[dict[str, str]]:
    return [mirrors.consumer(pod) for pod in holding.pods.values()]


def _holding(
    pod: Pod, claim: PodClaim, driver: str, node: str, allocation: Allocation, *, offered: bool
) -> Holding:
    assert claim.mirror is not None
    user = reference(pod)
    return Holding(
        uid=claim.uid,
        namespace=pod.metadata.namespace,
        claim=claim.name,
        entry=claim.entry,
        named=claim.claim is not None,
        shareable=claim.class_ is not None and claim.class_.shareable and mirrors.is_shareable(claim.mirror),
        driver=driver,
        node=node,
        allocation=allocation,
        pods={user.uid: user},
        class_name=claim.class_.metadata.name if claim.class_ is not None else "",
        node_part=claim.class_ is None or claim.class_.node_part == "Required",
        offered=offered,
    )
