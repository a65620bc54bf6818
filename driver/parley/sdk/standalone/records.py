"""Writes claims: finalizer, allocation, conditions. Each write is of the claim as it is, or fails.

Every write carries the claim's resourceVersion: it never undoes what others wrote, and one that was lost on the
way can't happen any more once a later one did.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.api.conditions import ConditionUpdate, updated_conditions
from parley.api.meta import Condition
from parley.api.models import ResourceClaim
from parley.api.names import CONDITION_ALLOCATING, driver_finalizer
from parley.api.resources import CLAIMS
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk.standalone import conditions
from parley.sdk.standalone.jobs import Part
from parley.sdk.standalone.view import View

Body = dict[str, Any]

_TRIES = 10


class Gone(Exception):
    """Raised when the claim is not there any more, or about to go."""


class StandaloneRecords:
    """One driver's writes of claims. All raise what a client raises, and Conflict only if others write all the
    time."""

    def __init__(self, client: Client, view: View, clock: Clock) -> None:
        self._client = client
        self._view = view
        self._clock = clock
        self._finalizer = driver_finalizer(view.driver)
        self._annotation = f"{view.driver}/allocating-on"

    def marked(self, claim: ResourceClaim) -> bool:
        """Whether the claim carries the driver's finalizer."""
        return self._finalizer in claim.metadata.finalizers

    def marked_for(self, claim: ResourceClaim) -> str | None:
        """The node where an allocation was begun."""
        return claim.metadata.annotations.get(self._annotation)

    async def mark(self, part: Part, node: str) -> None:
        """Finalizer and node, before anything is held there. Raises Gone."""

        def change(claim: ResourceClaim) -> Body | None:
            if claim.metadata.deletion_timestamp:
                raise Gone
            if self.marked(claim) and self.marked_for(claim) == node:
                return None
            others = [name for name in claim.metadata.finalizers if name != self._finalizer]
            finalizers = [*others, self._finalizer]
            return {"metadata": {"finalizers": finalizers, "annotations": {self._annotation: node}}}

        await self._write(part, change)

    async def unmark(self, part: Part) -> None:
        """The driver holds nothing for the claim: it may go."""

        def change(claim: ResourceClaim) -> Body | None:
            if not self.marked(claim) and self.marked_for(claim) is None:
                return None
            left = [name for name in claim.metadata.finalizers if name != self._finalizer]
            return {"metadata": {"finalizers": left or None, "annotations": {self._annotation: None}}}

        try:
            await self._write(part, change)
        except Gone:
            pass  # which is as good

    async def allocated(self, part: Part, allocation: Mapping[str, Any], *, live: bool) -> ResourceClaim:
        """Record the allocation, unless there is one; returns the claim as it is then. Raises Gone.

        `live`: an earlier attempt may have succeeded, so look first.
        """

        def change(claim: ResourceClaim) -> Body | None:
            if claim.status.allocation is not None:
                return None
            if claim.metadata.deletion_timestamp:
                raise Gone
            status: Body = {"driverName": self._view.driver, "allocation": allocation, "state": "allocated"}
            known = claim.status.conditions
            if conditions.allocating(known) is not None and (all_ := self._told(known, conditions.DONE, "")):
                status["conditions"] = all_
            return {"status": status}

        return await self._write(part, change, live=live, subresource="status")

    async def settle(self, part: Part) -> ResourceClaim:
        """See to it that no lost write of an allocation can happen any more; returns the claim. Raises Gone."""

        def change(claim: ResourceClaim) -> Body | None:
            if claim.status.allocation is not None:
                return None
            marked = None if self.marked_for(claim) is not None else ""
            return {"metadata": {"annotations": {self._annotation: marked}}}

        return await self._write(part, change, live=True)

    async def cleared(self, part: Part) -> None:
        """No allocation, no request to take it back, nothing in progress. Raises Gone."""

        def change(claim: ResourceClaim) -> Body | None:
            before, status = claim.status, dict[str, Any]()
            if before.allocation is not None or before.deallocation_requested:
                fields = ("driverName", "allocation", "deallocationRequested")
                status = {**dict.fromkeys(fields), "state": "pending"}
            if conditions.in_progress(before.conditions):
                status["conditions"] = self._told(before.conditions, conditions.ENDED, "")
            return {"status": status} if status else None

        await self._write(part, change, subresource="status")

    async def tell(self, part: Part, reason: str, message: str, *, in_progress: bool = False) -> None:
        """The condition Allocating, while there is no allocation. Raises Gone."""

        def change(claim: ResourceClaim) -> Body | None:
            if claim.status.allocation is not None:
                return None
            all_ = self._told(claim.status.conditions, reason, message, in_progress=in_progress)
            return {"status": {"conditions": all_}} if all_ else None

        await self._write(part, change, subresource="status")

    async def ended(self, part: Part, message: str) -> None:
        """Nothing is in progress any more, if the claim said that something was. Raises Gone."""
        claim = self._known(part)
        if conditions.in_progress(claim.status.conditions):
            await self.tell(part, conditions.ENDED, message)

    def _told(
        self, known: Sequence[Condition], reason: str, message: str, *, in_progress: bool = False
    ) -> list[Body] | None:
        now = rfc3339(self._clock())
        return updated_conditions(known, now, ConditionUpdate(CONDITION_ALLOCATING, in_progress, reason, message))

    async def _write(
        self,
        part: Part,
        change: Callable[[ResourceClaim], Body | None],
        *,
        live: bool = False,
        subresource: str = "",
    ) -> ResourceClaim:
        """Write what `change` makes of the claim, again if that was not its newest state."""
        for last in range(_TRIES - 1, -1, -1):
            claim = await self._live(part) if live else self._known(part)
            body = change(claim)
            if body is None:
                return claim
            (namespace, name), meta = part.key, claim.metadata
            known = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            body = {**body, "metadata": {**known, **body.get("metadata", {})}}
            try:
                written = await self._client.patch(CLAIMS, name, body, namespace, subresource=subresource)
            except NotFound:
                raise self._lost(part) from None
            except Conflict:
                if not last:
                    raise
                live = True
                continue
            if written.metadata.deletion_timestamp and not written.metadata.finalizers:
                self._lost(part)  # with its last finalizer it went
            self._view.wrote(written)
            return written
        raise AssertionError("unreachable")

    def _known(self, part: Part) -> ResourceClaim:
        claim = self._view.claim(part.key)
        if claim is None or claim.metadata.uid != part.uid:
            raise Gone
        return claim

    async def _live(self, part: Part) -> ResourceClaim:
        namespace, name = part.key
        try:
            claim = await self._client.get(CLAIMS, name, namespace)
        except NotFound:
            raise self._lost(part) from None
        if claim.metadata.uid != part.uid:
            raise self._lost(part)
        self._view.wrote(claim)
        return claim

    def _lost(self, part: Part) -> Gone:
        self._view.lost(CLAIMS, part.key, part.uid)
        return Gone()
