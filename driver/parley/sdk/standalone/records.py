"""Writes of a standalone driver into claims: finalizer, allocation, conditions.

Every write carries the claim's resourceVersion: it never undoes the writes of others, and a delayed write
conflicts once a later one has succeeded.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from parley.api import reasons
from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.names import CONDITION_ALLOCATING, driver_annotation, driver_finalizer
from parley.api.resources import CLAIMS
from parley.kube.client import REFUSALS, Client, Conflict, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk.claim_conditions import with_conditions
from parley.sdk.recorded import NOTHING_ALLOCATED, driver_of_record
from parley.sdk.standalone import conditions
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef

Body = dict[str, Any]

_TRIES = 10

log = structlog.get_logger(__name__)


class Gone(Exception):
    """Raised when the claim does not exist any more, is being deleted, or is allocated by another driver."""


class _FinalizerRemoved(Conflict):
    """Raised when the claim has lost the driver's finalizer: by a late write, or by an administrator."""


class StandaloneRecords:
    """One driver's writes of claims. All raise the client's exceptions; Conflict only after repeated conflicts."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._finalizer = driver_finalizer(informers.driver)
        self._annotation = driver_annotation(informers.driver)

    def has_finalizer(self, claim: ResourceClaim) -> bool:
        """Whether the claim has the driver's finalizer."""
        return self._finalizer in claim.metadata.finalizers

    def is_of_another_driver(self, claim: ResourceClaim) -> bool:
        """Whether another driver has allocated the claim: its class belonged to this driver before."""
        return driver_of_record(claim) not in ("", self._informers.driver)

    def begun_on(self, claim: ResourceClaim) -> str | None:
        """The node where an allocation was begun, None if none was."""
        return claim.metadata.annotations.get(self._annotation)

    def is_unstarted(self, claim: ResourceClaim) -> bool:
        """Whether the controller created the claim with the driver's finalizer, and nothing was begun for it."""
        return self.has_finalizer(claim) and self.begun_on(claim) is None

    def is_cached_unstarted(self, ref: ClaimRef) -> bool:
        """`is_unstarted` for the claim in the cache."""
        claim = self._informers.claim(ref.key)
        return claim is not None and claim.metadata.uid == ref.uid and self.is_unstarted(claim)

    async def add_finalizer(self, ref: ClaimRef, node: str, *, resumes: bool) -> None:
        """Writes finalizer and node before anything is allocated there. Raises Gone. `resumes`: the driver can
        continue there after a restart; otherwise the finalizer alone is enough, and it starts over."""

        def change(claim: ResourceClaim) -> Body | None:
            if claim.metadata.deletion_timestamp or self.is_of_another_driver(claim):
                raise Gone
            if self.has_finalizer(claim) and self.begun_on(claim) in ((node,) if resumes else (node, None)):
                return None
            others = [name for name in claim.metadata.finalizers if name != self._finalizer]
            finalizers = [*others, self._finalizer]
            return {"metadata": {"finalizers": finalizers, "annotations": {self._annotation: node}}}

        await self._write(ref, change)

    async def remove_finalizer(self, ref: ClaimRef) -> None:
        """Removes the driver's finalizer and annotation: the driver holds nothing for the claim."""

        def change(claim: ResourceClaim) -> Body | None:
            if not self.has_finalizer(claim) and self.begun_on(claim) is None:
                return None
            left = [name for name in claim.metadata.finalizers if name != self._finalizer]
            return {"metadata": {"finalizers": left or None, "annotations": {self._annotation: None}}}

        try:
            await self._write(ref, change)
        except Gone:
            pass  # nothing to remove

    async def record_allocation(
        self, ref: ClaimRef, allocation: Mapping[str, Any], node: str, *, live: bool
    ) -> ResourceClaim:
        """Records the allocation on the node, unless there is one; returns the resulting claim. Adds the driver's
        finalizer first if the claim has lost it. Raises Gone.

        `live`: an earlier attempt may have succeeded, so read the claim first.
        """

        def change(claim: ResourceClaim) -> Body | None:
            if self.is_of_another_driver(claim):
                raise Gone
            if claim.status.allocation is not None:
                return None
            if claim.metadata.deletion_timestamp:
                raise Gone
            if not self.has_finalizer(claim):
                raise _FinalizerRemoved(409, "Conflict", f"finalizer {self._finalizer} was removed")
            status: Body = {"driverName": self._informers.driver, "allocation": allocation}
            reported = conditions.allocating(claim.status.conditions) is not None
            return {"status": self._with_conditions(claim, status, *([_allocating(conditions.DONE)] * reported))}

        try:
            return await self._write(ref, change, live=live, subresource="status")
        except _FinalizerRemoved:
            await self.add_finalizer(ref, node, resumes=True)
            return await self._write(ref, change, subresource="status")

    async def settle(self, ref: ClaimRef) -> ResourceClaim:
        """Changes the claim so that a delayed write of an allocation conflicts; returns it. Raises Gone."""

        def change(claim: ResourceClaim) -> Body | None:
            if self.is_of_another_driver(claim):
                raise Gone
            if claim.status.allocation is not None:
                return None
            changed = None if self.begun_on(claim) is not None else ""
            return {"metadata": {"annotations": {self._annotation: changed}}}

        return await self._write(ref, change, live=True)

    async def take_over(self, ref: ClaimRef) -> ResourceClaim:
        """Changes a claim that an earlier copy of the driver began to allocate, unless it is allocated, so that
        delayed writes of that copy conflict. Returns it. Raises Gone."""
        since = f"another copy of the driver has continued it since {rfc3339(self._clock())}"

        def change(claim: ResourceClaim) -> Body | None:
            if claim.status.allocation is not None:
                return None
            update = _allocating(conditions.IN_PROGRESS, since, in_progress=True)
            return {"status": self._with_conditions(claim, {}, update)}

        return await self._write(ref, change, subresource="status")

    async def clear_allocation(self, ref: ClaimRef) -> None:
        """Clears the allocation, the request to deallocate, and the progress, unless another driver has allocated
        the claim. Raises Gone. If nothing is allocated, a refused write is ignored: the class may be another
        driver's by now."""

        def change(claim: ResourceClaim) -> Body | None:
            if self.is_of_another_driver(claim):
                return None
            before, status = claim.status, dict[str, Any]()
            if before.allocation is not None or before.deallocation_requested:
                status = dict(NOTHING_ALLOCATED)
            ended = [_allocating(conditions.ENDED)] * conditions.in_progress(before.conditions)
            return {"status": self._with_conditions(claim, status, *ended)} if status or ended else None

        try:
            await self._write(ref, change, subresource="status")
        except REFUSALS as error:
            if self._known(ref).status.allocation is not None:
                raise
            log.info("status not cleared", claim="/".join(ref.key), error=error.message)

    async def set_progress(self, ref: ClaimRef, message: str) -> None:
        """Sets the condition Allocating, unless the claim is allocated. Raises Gone."""
        await self._set_conditions(ref, _allocating(conditions.IN_PROGRESS, message, in_progress=True))

    async def set_refusal(self, ref: ClaimRef, reason: str, message: str) -> None:
        """Reports why a claim that is to be allocated without a pod is not allocated. Raises Gone."""
        why = ConditionUpdate(reasons.ALLOCATED, False, reason, message)
        await self._set_conditions(ref, _allocating(reason, message), why)

    async def _set_conditions(self, ref: ClaimRef, *updates: ConditionUpdate) -> None:
        def change(claim: ResourceClaim) -> Body | None:
            if claim.status.allocation is not None:
                return None
            status = self._with_conditions(claim, {}, *updates)
            return {"status": status} if status else None

        await self._write(ref, change, subresource="status")

    async def end_progress(self, ref: ClaimRef, message: str) -> None:
        """Ends the condition Allocating, if it says that an allocation is in progress. Raises Gone."""
        claim = self._known(ref)
        if conditions.in_progress(claim.status.conditions):
            await self._set_conditions(ref, _allocating(conditions.ENDED, message))

    def _with_conditions(self, claim: ResourceClaim, status: Body, *updates: ConditionUpdate) -> Body:
        return with_conditions(claim, status, rfc3339(self._clock()), *updates)

    async def _write(
        self,
        ref: ClaimRef,
        change: Callable[[ResourceClaim], Body | None],
        *,
        live: bool = False,
        subresource: str = "",
    ) -> ResourceClaim:
        """Writes the patch that `change` returns for the claim (None: no write); repeats it after a conflict."""
        for last in range(_TRIES - 1, -1, -1):
            claim = await self._live(ref) if live else self._known(ref)
            body = change(claim)
            if body is None:
                return claim
            (namespace, name), meta = ref.key, claim.metadata
            known = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            body = {**body, "metadata": {**known, **body.get("metadata", {})}}
            try:
                written = await self._client.patch(CLAIMS, name, body, namespace, subresource=subresource)
            except NotFound:
                raise self._lost(ref) from None
            except Conflict:
                if not last:
                    raise
                live = True
                continue
            if written.metadata.deletion_timestamp and not written.metadata.finalizers:
                self._lost(ref)  # removing the last finalizer deleted it
            self._informers.note_written(written)
            return written
        raise AssertionError("unreachable")

    def _known(self, ref: ClaimRef) -> ResourceClaim:
        claim = self._informers.claim(ref.key)
        if claim is None or claim.metadata.uid != ref.uid:
            raise Gone
        return claim

    async def _live(self, ref: ClaimRef) -> ResourceClaim:
        namespace, name = ref.key
        try:
            claim = await self._client.get(CLAIMS, name, namespace)
        except NotFound:
            raise self._lost(ref) from None
        if claim.metadata.uid != ref.uid:
            raise self._lost(ref)
        self._informers.note_written(claim)
        return claim

    def _lost(self, ref: ClaimRef) -> Gone:
        self._informers.note_deleted(CLAIMS, ref.key, ref.uid)
        return Gone()


def _allocating(reason: str, message: str = "", *, in_progress: bool = False) -> ConditionUpdate:
    return ConditionUpdate(CONDITION_ALLOCATING, in_progress, reason, message)
