"""Allocates a request's claims on a node and records it: all of them, or none.

    finalizers -> driver -> statuses
                    |          |
                    +----------+--(stopped, failed, too late)--> driver releases, nothing held

A write whose outcome is unknown is settled first: what is recorded is held, whoever asked to stop. What a
lost lease or a bug raises is passed on with nothing undone: the next leader finds the finalizers and goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from parley.api.models import Allocation as Record
from parley.api.models import ResourceClaim
from parley.kube.client import REFUSALS, ApiError, OutcomeUnknown
from parley.sdk.checks import DriverFault, failure_text
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.recorded import allocation_record
from parley.sdk.standalone.holdings import AllocationStage, Holdings, StandaloneHolding
from parley.sdk.standalone.operations import RETRIES, ClaimRef, Operation, cancel, stopped
from parley.sdk.standalone.progress import Progress
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.restoring import held
from parley.sdk.threads import from_any_thread
from parley.sdk.values import Allocation, PermanentError, Request

T = TypeVar("T")

_REFUSED_SECONDS = (0.5, 2.0)
"""Pauses before a write that was refused is tried again: a policy may take a moment to see another class."""

log = structlog.get_logger(__name__)


class Failed(Exception):
    """Raised when a request could not be allocated; nothing is held for its claims then. `permanent`: this node
    will never do."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class MayNotBegin(Failed):
    """Raised when the API server does not let the driver begin, on whatever node."""


class Stopped(Exception):
    """Raised when an allocation is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to allocate: `refs` in the order of the request's claims, in at most `seconds`; `shareable` has the
    UIDs of claims that several pods may use."""

    request: Request[Any, Any]
    refs: Sequence[ClaimRef]
    seconds: float
    shareable: frozenset[str] = frozenset()


class StandaloneAllocator:
    """Has one driver allocate, and records it."""

    def __init__(self, driver: EmbeddedDriver, holdings: Holdings, records: StandaloneRecords) -> None:
        self._driver = driver
        self._holdings = holdings
        self._records = records
        self._unsettled: dict[str, Mapping[str, Any]] = {}
        """Allocations by the claim's UID whose write may have happened or may yet happen."""

    def is_first(self, operation: Operation) -> bool:
        """Whether the claims were created to be allocated at once, and nothing was begun for them before."""
        return all(
            self._holdings.get(ref.uid) is None and self._records.is_known_marked(ref) for ref in operation.refs
        )

    async def allocate(self, operation: Operation, work: Assignment) -> None:
        """Returns when all is recorded, or when the operation was stopped or a claim is gone. Raises Failed."""
        if not await self._is_prepared(operation, work) or operation.stop.is_set():
            return
        for ref in work.refs:
            self._holdings.put(ref.uid, StandaloneHolding(ref.key, operation.node, AllocationStage.OPEN))
        try:
            allocations = await self._allocations(operation, work)
        except Stopped:
            await self._undo(operation, work.refs, "not wanted any more")
        except Failed as failure:
            self._log(operation, failure)
            await self._undo(operation, work.refs, str(failure))
            raise
        else:
            await self._record(operation, work, allocations)

    def _log(self, operation: Operation, failure: Failed) -> None:
        log.warning(
            "allocation failed",
            driver=self._driver.name,
            claims=["/".join(ref.key) for ref in operation.refs],
            node=operation.node,
            error=str(failure),
            exc_info=failure.__cause__ if isinstance(failure.__cause__, DriverFault) else None,
        )

    async def _is_prepared(self, operation: Operation, work: Assignment) -> bool:
        """Whether the driver may begin now; not if a claim is gone. Raises MayNotBegin."""
        for pause in (*_REFUSED_SECONDS, None):
            try:
                await self._prepare(operation, work)
            except Gone:
                return False
            except REFUSALS as error:
                if pause is None:
                    refused = MayNotBegin(f"the API server refused the finalizer of the claim: {error.message}")
                    self._log(operation, refused)
                    raise refused from error
                await stopped(operation, pause)
            else:
                return True
            if operation.stop.is_set():
                return False
        raise AssertionError("unreachable")

    async def _prepare(self, operation: Operation, work: Assignment) -> None:
        """Nothing is held from before but on this node; then every claim has the finalizer."""
        for ref in work.refs:
            before = self._holdings.get(ref.uid)
            if before is not None and not (
                before.stage is AllocationStage.CARRIED and before.node == operation.node
            ):
                await self._holdings.release(ref.uid)
        for ref in work.refs:
            await self._records.add_finalizer(ref, operation.node, resumes=self._driver.driver.asynchronous)

    async def _allocations(self, operation: Operation, work: Assignment) -> Mapping[str, Allocation]:
        """What the driver allocated. Raises Failed or Stopped; then it may hold something."""
        progress = Progress(self._records, work.refs)
        request = replace(work.request, progress=from_any_thread(progress.report))
        reporting = asyncio.ensure_future(progress.run())
        try:
            return await _within(operation, work.seconds, self._driver.allocate(request, operation.node))
        except (Stopped, Failed):
            raise
        except Exception as error:
            raise Failed(failure_text(error), permanent=isinstance(error, PermanentError)) from error
        finally:
            await cancel(reporting)

    async def _record(self, operation: Operation, work: Assignment, allocations: Mapping[str, Allocation]) -> None:
        for index, (ref, claim) in enumerate(zip(work.refs, work.request.claims, strict=True)):
            shareable = ref.uid in work.shareable
            body = allocation_record(
                self._driver.name, allocations[claim.name], operation.node, shareable=shareable
            )
            try:
                await self._record_one(operation, ref, body)
            except (Stopped, Gone):
                await self._undo(operation, work.refs[index:], "not wanted any more")
                return
            except REFUSALS as error:
                message = f"the API server refused the allocation: {error.message}"
                await self._undo(operation, work.refs[index:], message)
                raise Failed(message) from error

    async def _record_one(self, operation: Operation, ref: ClaimRef, body: Mapping[str, Any]) -> None:
        """Try until it is written, refused or not wanted any more."""
        failures = 0
        while not operation.stop.is_set():
            try:
                claim = await self._records.allocated(ref, body, live=ref.uid in self._unsettled)
            except OutcomeUnknown as error:
                self._unsettled[ref.uid] = body
                failures, why = failures + 1, str(error)
            except REFUSALS:
                raise
            except ApiError as error:
                failures, why = failures + 1, str(error)
            else:
                self._recorded(ref, claim, body, operation.node)
                return
            log.warning("allocation not recorded yet", claim="/".join(ref.key), failures=failures, error=why)
            await stopped(operation, RETRIES.delay(failures))
        raise Stopped

    def _recorded(self, ref: ClaimRef, claim: ResourceClaim, body: Mapping[str, Any], node: str) -> None:
        if claim.status.allocation != Record.model_validate(body):
            self._driver.restore(held(claim, ()))  # a late write of an earlier process: what is recorded, counts
        self._unsettled.pop(ref.uid, None)
        self._holdings.put(ref.uid, StandaloneHolding(ref.key, node, AllocationStage.RECORDED))
        log.info("allocated", driver=self._driver.name, claim="/".join(ref.key), node=node)

    async def _undo(self, operation: Operation, refs: Sequence[ClaimRef], why: str) -> None:
        """Nothing is held for these claims, but for what turns out to be recorded."""
        for ref in refs:
            if not await self._recorded_after_all(ref, operation.node):
                await persist(ref, self._release)
                await self._end_progress(ref, why)

    async def _recorded_after_all(self, ref: ClaimRef, node: str) -> bool:
        """Whether a write of unknown outcome happened. If not, it can't any more."""
        body = self._unsettled.get(ref.uid)
        if body is None:
            return False
        try:
            claim = await persist(ref, self._records.settle)
        except Gone:
            claim = None
        if claim is not None and claim.status.allocation is not None:
            self._recorded(ref, claim, body, node)
            return True
        del self._unsettled[ref.uid]
        return False

    async def _release(self, ref: ClaimRef) -> None:
        await self._holdings.release(ref.uid)

    async def _end_progress(self, ref: ClaimRef, why: str) -> None:
        try:
            await self._records.end_progress(ref, why)
        except Gone:
            pass
        except (ApiError, OutcomeUnknown) as error:
            log.info("progress not written", claim="/".join(ref.key), error=str(error))


async def _within(
    operation: Operation, seconds: float, allocating: Coroutine[Any, Any, Mapping[str, Allocation]]
) -> Mapping[str, Allocation]:
    """The driver's result. It is cancelled, and has ended, when this raises Stopped or Failed."""
    working, stopping = asyncio.ensure_future(allocating), asyncio.ensure_future(operation.stop.wait())
    try:
        await asyncio.wait((working, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if operation.stop.is_set():
            raise Stopped
        if not working.done():
            raise Failed(f"nothing was allocated within the {seconds:g} s of allocationTimeoutSeconds")
        return working.result()
    finally:
        await cancel(working)
        await cancel(stopping)


async def persist(ref: ClaimRef, work: Callable[[ClaimRef], Awaitable[T]]) -> T:
    """Repeat it until it succeeds: going on without it would be wrong. Raises Gone."""
    failures = 0
    while True:
        try:
            return await work(ref)
        except Gone:
            raise
        except Exception as error:
            failures += 1
            log.warning(
                "claim not settled yet", claim="/".join(ref.key), failures=failures, error=failure_text(error)
            )
            await asyncio.sleep(RETRIES.delay(failures))
