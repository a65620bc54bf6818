"""Allocates a request's claims on a node and records it: all of them, or none.

    finalizers -> driver -> statuses
                    |          |
                    +----------+--(stopped, failed, too late)--> driver gives back, nothing held

A write whose outcome is unknown is looked after first: what is recorded is held, whoever asked to stop. What a
lost lease or a bug raises is passed on with nothing undone: the next one finds the claims marked and goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from parley.api.models import Allocation as Record
from parley.api.models import ResourceClaim
from parley.kube.client import ApiError, BadRequest, Forbidden, Invalid, OutcomeUnknown
from parley.sdk.checks import DriverFault, failure_text
from parley.sdk.driver import Allocation, PermanentError, Request
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.recorded import allocation_record
from parley.sdk.standalone.holdings import Holdings, Stage, StandaloneHolding
from parley.sdk.standalone.jobs import RETRIES, Job, Part, end, stopped
from parley.sdk.standalone.progress import Progress
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.restoring import held

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Failed(Exception):
    """Raised when a request could not be allocated; nothing is held for its claims then. `permanent`: this node
    will never do."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class Stopped(Exception):
    """Raised when an allocation is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to allocate: `parts` in the order of the request's claims, in at most `seconds`; `shareable` has the
    UIDs of claims that several pods may use."""

    request: Request[Any, Any]
    parts: Sequence[Part]
    seconds: float
    shareable: frozenset[str] = frozenset()


class StandaloneAllocator:
    """Has one driver allocate."""

    def __init__(self, driver: EmbeddedDriver, holdings: Holdings, records: StandaloneRecords) -> None:
        self._driver = driver
        self._holdings = holdings
        self._records = records
        self._open: dict[str, Mapping[str, Any]] = {}
        """Allocations by the claim's UID whose write may have happened or may yet happen."""

    async def allocate(self, job: Job, work: Assignment) -> None:
        """Returns when everything is recorded, or when the job was stopped or a claim went. Raises Failed."""
        try:
            await self._prepare(job, work)
        except Gone:
            return
        if job.stop.is_set():
            return
        for part in work.parts:
            self._holdings.put(part.uid, StandaloneHolding(part.key, job.node, Stage.OPEN))
        try:
            allocations = await self._driven(job, work)
        except Stopped:
            await self._undo(job, work.parts, "not wanted any more")
        except Failed as failure:
            self._log(job, failure)
            await self._undo(job, work.parts, str(failure))
            raise
        else:
            await self._record(job, work, allocations)

    def _log(self, job: Job, failure: Failed) -> None:
        log.warning(
            "allocation failed",
            driver=self._driver.name,
            claims=["/".join(part.key) for part in job.parts],
            node=job.node,
            error=str(failure),
            exc_info=failure.__cause__ if isinstance(failure.__cause__, DriverFault) else None,
        )

    async def _prepare(self, job: Job, work: Assignment) -> None:
        """Nothing is held from before but on this node; then every claim is marked."""
        for part in work.parts:
            before = self._holdings.get(part.uid)
            if before is not None and not (before.stage is Stage.CARRIED and before.node == job.node):
                await self._holdings.release(part.uid)
        for part in work.parts:
            await self._records.mark(part, job.node)

    async def _driven(self, job: Job, work: Assignment) -> Mapping[str, Allocation]:
        """What the driver allocated. Raises Failed or Stopped; then it may hold something."""
        progress = Progress(self._records, work.parts)
        request = replace(work.request, progress=progress.tell)
        reporting = asyncio.ensure_future(progress.report())
        try:
            return await _within(job, work.seconds, self._driver.allocate(request, job.node))
        except (Stopped, Failed):
            raise
        except Exception as error:
            raise Failed(failure_text(error), permanent=isinstance(error, PermanentError)) from error
        finally:
            await end(reporting)

    async def _record(self, job: Job, work: Assignment, allocations: Mapping[str, Allocation]) -> None:
        for index, (part, claim) in enumerate(zip(work.parts, work.request.claims, strict=True)):
            shareable = part.uid in work.shareable
            body = allocation_record(self._driver.name, allocations[claim.name], job.node, shareable=shareable)
            try:
                await self._record_one(job, part, body)
            except (Stopped, Gone):
                await self._undo(job, work.parts[index:], "not wanted any more")
                return
            except (BadRequest, Forbidden, Invalid) as error:
                message = f"the API server refused the allocation: {error.message}"
                await self._undo(job, work.parts[index:], message)
                raise Failed(message) from error

    async def _record_one(self, job: Job, part: Part, body: Mapping[str, Any]) -> None:
        """Try until it is written, refused or not wanted any more."""
        failures = 0
        while not job.stop.is_set():
            try:
                claim = await self._records.allocated(part, body, live=part.uid in self._open)
            except OutcomeUnknown as error:
                self._open[part.uid] = body
                failures, why = failures + 1, str(error)
            except (BadRequest, Forbidden, Invalid):
                raise
            except ApiError as error:
                failures, why = failures + 1, str(error)
            else:
                self._recorded(part, claim, body, job.node)
                return
            log.warning("allocation not recorded yet", claim="/".join(part.key), failures=failures, error=why)
            await stopped(job, RETRIES.delay(failures))
        raise Stopped

    def _recorded(self, part: Part, claim: ResourceClaim, body: Mapping[str, Any], node: str) -> None:
        if claim.status.allocation != Record.model_validate(body):
            self._driver.restore(held(claim))  # a late write of an earlier process: what is recorded, counts
        self._open.pop(part.uid, None)
        self._holdings.put(part.uid, StandaloneHolding(part.key, node, Stage.RECORDED))
        log.info("allocated", driver=self._driver.name, claim="/".join(part.key), node=node)

    async def _undo(self, job: Job, parts: Sequence[Part], why: str) -> None:
        """Nothing is held for these claims, but for what turns out to be recorded."""
        for part in parts:
            if not await self._recorded_after_all(part, job.node):
                await persist(part, self._release)
                await self._end_progress(part, why)

    async def _recorded_after_all(self, part: Part, node: str) -> bool:
        """Whether a write of unknown outcome happened. If not, it can't any more."""
        body = self._open.get(part.uid)
        if body is None:
            return False
        try:
            claim = await persist(part, self._records.settle)
        except Gone:
            claim = None
        if claim is not None and claim.status.allocation is not None:
            self._recorded(part, claim, body, node)
            return True
        del self._open[part.uid]
        return False

    async def _release(self, part: Part) -> None:
        await self._holdings.release(part.uid)

    async def _end_progress(self, part: Part, why: str) -> None:
        try:
            await self._records.ended(part, why)
        except Gone:
            pass
        except (ApiError, OutcomeUnknown) as error:
            log.info("progress not written", claim="/".join(part.key), error=str(error))


async def _within(
    job: Job, seconds: float, allocating: Coroutine[Any, Any, Mapping[str, Allocation]]
) -> Mapping[str, Allocation]:
    """The driver's result. It is cancelled, and has ended, when this raises Stopped or Failed."""
    working, stopping = asyncio.ensure_future(allocating), asyncio.ensure_future(job.stop.wait())
    try:
        await asyncio.wait((working, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if job.stop.is_set():
            raise Stopped
        if not working.done():
            raise Failed(f"nothing was allocated within the {seconds:g} s of allocationTimeoutSeconds")
        if working.cancelled():
            raise DriverFault("the driver cancelled its own allocation")
        return working.result()
    finally:
        await end(working)
        await end(stopping)


async def persist(part: Part, work: Callable[[Part], Awaitable[T]]) -> T:
    """Do it until it works: going on without it would be wrong. Raises Gone."""
    failures = 0
    while True:
        try:
            return await work(part)
        except Gone:
            raise
        except Exception as error:
            failures += 1
            log.warning("to be repeated", claim="/".join(part.key), failures=failures, error=failure_text(error))
            await asyncio.sleep(RETRIES.delay(failures))
