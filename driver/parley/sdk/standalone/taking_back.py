"""Gives back what claims hold, and lets them go: when that is asked for, when they are deleted, when nobody wants
them.

Nobody wants a claim that is marked, or may hold something, and shows no allocation, unless a PodScheduling
selects a node for it or it is allocated without a pod. A claim whose allocation is recorded stays as it is until
it is to go.
"""

from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.sdk.recorded import driver_of_record, must_be_deallocated
from parley.sdk.standalone.holdings import Holdings
from parley.sdk.standalone.immediate import ImmediateAllocations
from parley.sdk.standalone.jobs import Job, Jobs, Part
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.view import View


class TakingBack:
    """One driver's claims: decides for each whether there is anything to do but what pods ask for."""

    def __init__(
        self,
        view: View,
        holdings: Holdings,
        records: StandaloneRecords,
        jobs: Jobs,
        immediate: ImmediateAllocations,
    ) -> None:
        self._view = view
        self._holdings = holdings
        self._records = records
        self._jobs = jobs
        self._immediate = immediate

    async def sync(self, key: Key) -> None:
        """Begin what the claim of that name needs next. Jobs do the rest."""
        claim = self._view.claim(key)
        for uid in self._holdings.orphans(key, claim.metadata.uid if claim is not None else None):
            self._start(Part(key, uid))
        if claim is None or not self._immediate.wanted(claim):
            self._immediate.leave(key)
        if claim is None or not self._jobs.free(claim.metadata.uid):
            return
        if self._to_go(claim) or self._unwanted(claim):
            self._start(Part(key, claim.metadata.uid))
        elif self._immediate.wanted(claim):
            self._immediate.sync(key, claim)

    def _start(self, part: Part) -> None:
        if self._jobs.free(part.uid):
            self._jobs.start(Job([part]), self._take_back)

    def _to_go(self, claim: ResourceClaim) -> bool:
        """Whether the driver has to give back what the claim holds, and to let it go."""
        return must_be_deallocated(claim) and self._touched(claim)

    def _unwanted(self, claim: ResourceClaim) -> bool:
        if claim.status.allocation is not None or not self._touched(claim) or self._immediate.wanted(claim):
            return False
        meta = claim.metadata
        return not any(s.spec.selected_node for s in self._view.schedulings_of((meta.namespace, meta.name)))

    def _touched(self, claim: ResourceClaim) -> bool:
        """Whether the driver may hold something for the claim, or keeps it from going."""
        held = self._holdings.get(claim.metadata.uid) is not None
        return held or self._records.marked(claim) or driver_of_record(claim) == self._view.driver

    async def _take_back(self, job: Job) -> None:
        """Deallocate, clear the status, let the claim go: each step safe to repeat."""
        (part,) = job.parts
        await self._holdings.release(part.uid)
        try:
            await self._records.cleared(part)
            await self._records.unmark(part)
        except Gone:
            pass  # forced away; nothing is held, which is what counts
