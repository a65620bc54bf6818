"""Reconciles one driver's claims: deallocates, and starts allocations of claims without a pod.

Deallocates claims whose record says so (`parley.sdk.recorded`), and unused ones. A claim is unused if the driver
may hold something, or has its finalizer on the claim, but no allocation is recorded, no PodScheduling selects a
node for the claim, and it is not to be allocated without a pod; or if another driver has allocated it, because its
class was changed. Claims are allocated for pods by `pod_allocations`.
"""

import asyncio

from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.kube.queue import WorkQueue
from parley.sdk.immediate import is_pending
from parley.sdk.recorded import driver_of_record, must_be_deallocated
from parley.sdk.standalone.holdings import Holdings
from parley.sdk.standalone.immediate import ImmediateAllocations
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef, Operation, Operations
from parley.sdk.standalone.records import Gone, StandaloneRecords

SELECTION_SECONDS = 1.0
"""How long a claim that was created with the driver's finalizer may wait for the PodScheduling that selects its
node: that was written before, but arrives by another watch."""


class StandaloneClaimReconciler:
    """Reconciles one driver's claims. `queue` has their keys."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        informers: Informers,
        holdings: Holdings,
        records: StandaloneRecords,
        operations: Operations,
        immediate: ImmediateAllocations,
    ) -> None:
        self._queue = queue
        self._unselected: dict[Key, tuple[str, float]] = {}
        """UIDs of claims that wait for their PodScheduling to select a node, and since when."""
        self._informers = informers
        self._holdings = holdings
        self._records = records
        self._operations = operations
        self._immediate = immediate

    async def sync(self, key: Key) -> None:
        """Starts the operation that the claim of that name needs next."""
        claim = self._informers.claim(key)
        for uid in self._holdings.orphans(key, claim.metadata.uid if claim is not None else None):
            self._start(ClaimRef(key, uid))
        if claim is None or claim.status.allocation is not None:
            self._unselected.pop(key, None)
        if claim is None or not self._immediate.serves(claim):
            self._immediate.forget(key)
            if claim is not None and is_pending(claim):
                self._operations.stop(claim.metadata.uid)  # its class is another driver's now, or gone
        if claim is None or not self._operations.free(claim.metadata.uid):
            return
        if (must_be_deallocated(claim) and self._may_hold(claim)) or self._unused(claim):
            if left := self._may_be_selected(key, claim):
                self._queue.add_after(key, left)
                return
            self._start(ClaimRef(key, claim.metadata.uid))
        elif self._immediate.serves(claim):
            await self._immediate.sync(key, claim)

    def _start(self, ref: ClaimRef) -> None:
        if self._operations.free(ref.uid):
            self._operations.start(Operation([ref]), self._deallocate)

    def _may_be_selected(self, key: Key, claim: ResourceClaim) -> float:
        """For how many more seconds the watch may be behind a selection of a node for the claim."""
        uid, now = claim.metadata.uid, asyncio.get_running_loop().time()
        settled = self._holdings.get(uid) is not None or claim.status.allocation is not None
        if settled or claim.metadata.deletion_timestamp or not self._records.is_unstarted(claim):
            return 0.0
        if self._unselected.get(key, ("", 0.0))[0] != uid:
            self._unselected[key] = uid, now
        return max(self._unselected[key][1] + SELECTION_SECONDS - now, 0.0)

    def _unused(self, claim: ResourceClaim) -> bool:
        if self._records.is_of_another_driver(claim):
            return self._may_hold(claim)
        if claim.status.allocation is not None or not self._may_hold(claim) or self._immediate.serves(claim):
            return False
        meta = claim.metadata
        return not any(s.spec.selected_node for s in self._informers.schedulings_of((meta.namespace, meta.name)))

    def _may_hold(self, claim: ResourceClaim) -> bool:
        """Whether the driver may hold something for the claim, or has its finalizer on it."""
        held = self._holdings.get(claim.metadata.uid) is not None
        return held or self._records.has_finalizer(claim) or driver_of_record(claim) == self._informers.driver

    async def _deallocate(self, operation: Operation) -> None:
        """Deallocates: driver, then status, then finalizer; each step is safe to repeat."""
        (ref,) = operation.refs
        await self._holdings.release(ref.uid)
        try:
            await self._records.clear_allocation(ref)
            await self._records.remove_finalizer(ref)
        except Gone:
            pass  # the claim was deleted by force; nothing is held any more
