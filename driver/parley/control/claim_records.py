"""Records of named claims: the status of Parley's own claim, and in the same write the conditions that follow.

Nothing is decided here. A record may show the allocation of another driver, which the claim's class had before:
that is cleared, or its driver is asked to deallocate, before anything else is written.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.names import CONDITION_RELEASING, CONDITION_STRANDED
from parley.api.resources import CLAIMS
from parley.control.allocation import Busy
from parley.control.holding import Holding, Written
from parley.control.mirror_status import users
from parley.control.release.receipts import releasing_condition
from parley.control.state import State
from parley.control.writes import ClaimWrites
from parley.kube.client import Client, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk.claim_conditions import with_conditions
from parley.sdk.recorded import NOTHING_ALLOCATED, allocation_record, driver_of_record, must_be_deallocated

_NOTHING: Mapping[str, Any] = {**NOTHING_ALLOCATED, "reservedFor": None, "keptUntil": None}
"""The status of a named claim that is not allocated."""

_REQUESTED: Mapping[str, Any] = {"reservedFor": None, "deallocationRequested": True}
"""The status that asks a standalone driver to deallocate."""


class ClaimRecords:
    """Writes the records of named claims, and tells what they show."""

    def __init__(self, client: Client, state: State, clock: Clock) -> None:
        self._client = client
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._clock = clock
        self._writes = ClaimWrites(client, state.cluster)

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

    async def write(self, holding: Holding) -> None:
        """Record the holding's users, and the allocation of an embedded driver. Raises Busy if another driver has
        to deallocate first."""
        if (claim := self._writes.own(holding)) is not None and (
            self._is_taken_back(claim, holding) or await self._returns_to_former(claim, holding)
        ):
            raise Busy
        status = {"reservedFor": _recordable(holding, users(holding))}
        await self._write(holding, status if holding.standalone else {**allocation_status(holding), **status})

    async def write_used(self, uid: str) -> None:
        """Record a claim that others use, if the writes for its own pods have failed so far."""
        used = self._ledger.get(uid)
        if used is None or not used.joinable or self._writes.own(used) is None:
            return
        async with used.lock:
            if not (used.written.is_known or used.record_written.is_known or self.shows_allocation(used)):
                await self.write(used)

    async def record(self, claim: ResourceClaim, holding: Holding) -> None:
        """Record a named claim's allocation and users, after those of the claims that it uses. Raises Conflict if
        the claim has changed since, and Busy if another driver has to deallocate first."""
        for uid in holding.uses:
            await self.write_used(uid)
        async with holding.lock:
            if await self._returns_to_former(claim, holding):
                raise Busy
            status = {**allocation_status(holding), "reservedFor": _recordable(holding, users(holding))}
            status = with_conditions(claim, status, rfc3339(self._clock()))
            await self._writes.patch_record(holding, claim, status)
            holding.record_written = Written.YES if holding.record_written.is_settled else Written.UNSETTLED

    async def _write(
        self,
        holding: Holding,
        status: Mapping[str, Any],
        *,
        without: Collection[str] = (),
        decided_on: ResourceClaim | None = None,
    ) -> None:
        """Write a claim's own record, with the conditions that follow from it in the same write; `decided_on` is
        the claim as it was when that was decided, None the cache's."""
        claim = decided_on or self._writes.own(holding)
        if claim is not None and claim.metadata.uid == holding.uid:
            status = with_conditions(claim, status, rfc3339(self._clock()), without=without)
        await self._writes.write(holding, status, decided_on)

    def _is_taken_back(self, claim: ResourceClaim, holding: Holding) -> bool:
        """Whether the standalone driver deallocates the claim, which was deleted before any of its pods was
        recorded as its user. None of them may begin to use it then."""
        if not holding.standalone or not must_be_deallocated(claim):
            return False
        pods = [self._cluster.pod_with_uid(user) for user in holding.pods.values()]
        return all(pod is None or not pod.spec.node_name for pod in pods)

    async def _returns_to_former(self, claim: ResourceClaim, holding: Holding) -> bool:
        """Whether the named claim records an allocation of the driver that its class had before. A standalone one
        saw the class's change too late, and is asked to deallocate. An embedded one's is a late write of a former
        leader, and is cleared."""
        former = driver_of_record(claim)
        if holding.standalone or former in ("", holding.driver):
            return False
        try:
            if former in self._drivers:
                await self.clear_unknown_allocation(claim)
            elif not claim.status.deallocation_requested:
                status = with_conditions(claim, _REQUESTED, rfc3339(self._clock()))
                await self._writes.patch_record(holding, claim, status)
        except NotFound:
            pass  # removed by force, with its record
        return True

    async def clear_unknown_allocation(self, claim: ResourceClaim) -> None:
        """Clear an allocation in a named claim's record that the claim's driver does not have, even if the driver
        has another one for the claim.

        Raises Conflict if the claim has changed since.
        """
        now = rfc3339(self._clock())
        await self._writes.patch(claim, with_conditions(claim, _NOTHING, now, without=(CONDITION_STRANDED,)))

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
        await self._writes.patch(claim, status)
        return True

    async def unreserve(self, holding: Holding, remaining: Sequence[Mapping[str, str]]) -> None:
        """Record that only these pods use the claim any more. Raises NotFound if the claim is gone."""
        status = {"reservedFor": _recordable(holding, remaining), **_kept_until(holding)}
        # Nothing is reserved in a record that has yet to show the allocation.
        await self._writes.write(holding, status if self.shows_allocation(holding) else {})

    async def request_deallocation(self, holding: Holding) -> bool:
        """Ask the standalone driver to deallocate, unless it has done so; returns whether that was written. Raises
        NotFound if the claim is gone, and Conflict if it has changed: the driver may have allocated it anew."""
        claim = await self._writes.current(holding)
        if claim is not None and claim.status.allocation is None:
            return False
        await self._write(holding, _REQUESTED, decided_on=claim)
        return True

    async def record_releasing(self, holding: Holding) -> None:
        """Record that a named claim has no users and is not free yet, with what it waits for and since when."""
        claim = self._writes.own(holding)
        if claim is None:
            return
        try:
            if self._cluster.own_writes.is_stale(claim.metadata):
                claim = await self._client.get(CLAIMS, holding.claim, holding.namespace)
            freed = {"reservedFor": None, **_kept_until(holding)} if claim.status.reserved_for else {}
            status = with_conditions(claim, freed, rfc3339(self._clock()), releasing_condition(holding))
            if status:
                await self._writes.patch_record(holding, claim, status)
        except NotFound:
            pass  # deleted meanwhile

    async def keep_without_users(self, holding: Holding) -> None:
        """Record that the claim stays allocated without users, and that its nodes do not have it prepared."""
        await self._write_released(holding, _kept_until(holding))

    async def clear(self, holding: Holding) -> None:
        """Clear the holding's allocation."""
        claim = self._writes.own(holding)
        if claim is None or not await self._returns_to_former(claim, holding):
            await self._write_released(holding, _NOTHING, CONDITION_STRANDED)

    async def _write_released(self, holding: Holding, status: Mapping[str, Any], *ended: str) -> None:
        """Write the claim's record when no node has it prepared any more, and remove conditions of these types."""
        if self._writes.own(holding) is None:
            return  # removed by force; another claim may have its name
        try:
            await self._write(holding, status, without=(CONDITION_RELEASING, *ended))
        except NotFound:
            pass  # deleted meanwhile


def allocation_status(holding: Holding) -> dict[str, Any]:
    """The status of a named claim that records the allocation of an embedded driver."""
    allocation = allocation_record(holding.driver, holding.allocation, holding.node, shareable=holding.shareable)
    units = {"units": holding.units} if holding.records_units else {}
    return {"driverName": holding.driver, "allocation": {**allocation, **units}}


def _recordable(holding: Holding, users: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Those of the users that the claim's record can hold. If a claim was recorded as not shareable, its record
    holds one, but schedulers let several pods use it if its built-in claim is shareable."""
    return users if holding.shareable else users[:1]


def _kept_until(holding: Holding) -> dict[str, str | None]:
    """Until when a named claim stays allocated without users; None removes a deadline that is recorded."""
    return {"keptUntil": rfc3339(holding.kept_until) if holding.kept_until is not None else None}
