"""Allocates a request's claims on a node and records it: all of them, or none.

    finalizers -> driver -> statuses
                    |          |
                    +----------+--(stopped, failed, too late)--> driver releases, nothing held

A write whose outcome is unknown is settled first: a recorded allocation stays, even after a request to stop. After
a lost lease or a bug nothing is undone, and the exception propagates: the next leader continues by the finalizers.
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
from parley.sdk.standalone.operations import RETRIES, ClaimRef, Operation, cancel, wait_stopped
from parley.sdk.standalone.progress import Progress
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.restoring import held
from parley.sdk.threads import from_any_thread
from parley.sdk.values import Allocation, PermanentError, Request

T = TypeVar("T")

_REFUSED_SECONDS = (0.5, 2.0)
"""Pauses before a refused write is tried again: an admission policy may see a changed class with a delay."""

log = structlog.get_logger(__name__)


class Failed(Exception):
    """Raised when a request could not be allocated; its claims hold nothing then. `permanent`: it can never be
    allocated on this node."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class MayNotBegin(Failed):
    """Raised when the API server refuses the driver's finalizer, so that it can't begin on any node."""


class Stopped(Exception):
    """Raised when the operation was asked to stop."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A request to allocate: `refs` are its claims in the same order, `seconds` the time limit; `shareable` has
    the UIDs of claims that several pods may use."""

    request: Request[Any, Any]
    refs: Sequence[ClaimRef]
    seconds: float
    shareable: frozenset[str] = frozenset()


class StandaloneAllocator:
    """Calls one driver to allocate, and records the allocations."""

    def __init__(self, driver: EmbeddedDriver, holdings: Holdings, records: StandaloneRecords) -> None:
        self._driver = driver
        self._holdings = holdings
        self._records = records
        self._unsettled: dict[str, Mapping[str, Any]] = {}
        """Allocations whose write has an unknown outcome, by the claim's UID: it may still succeed."""

    def is_first(self, operation: Operation) -> bool:
        """Whether the claims were created with the driver's finalizer, and no allocation was begun before."""
        held = any(self._holdings.get(ref.uid) is not None for ref in operation.refs)
        return not held and all(map(self._records.is_cached_unstarted, operation.refs))

    async def allocate(self, operation: Operation, work: Assignment) -> None:
        """Returns when all claims are recorded, the operation is stopped, or a claim is gone. Raises Failed."""
        if not await self._prepared(operation, work) or operation.stop.is_set():
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

    async def _prepared(self, operation: Operation, work: Assignment) -> bool:
        """Prepares the claims, with retries; False if stopped or if a claim is gone. Raises MayNotBegin."""
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
                await wait_stopped(operation, pause)
            else:
                return True
            if operation.stop.is_set():
                return False
        raise AssertionError("unreachable")

    async def _prepare(self, operation: Operation, work: Assignment) -> None:
        """Releases earlier holdings, except those to continue on this node; then adds finalizers."""
        for ref in work.refs:
            before = self._holdings.get(ref.uid)
            if before is not None and not (
                before.stage is AllocationStage.CARRIED and before.node == operation.node
            ):
                await self._holdings.release(ref.uid)
        for ref in work.refs:
            await self._records.add_finalizer(ref, operation.node, resumes=self._driver.driver.asynchronous)

    async def _allocations(self, operation: Operation, work: Assignment) -> Mapping[str, Allocation]:
        """Calls the driver. Raises Failed or Stopped; then the driver may hold something."""
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
        """Tries until the allocation is written or refused, or the operation is stopped."""
        failures = 0
        while not operation.stop.is_set():
            try:
                live = ref.uid in self._unsettled
                claim = await self._records.record_allocation(ref, body, operation.node, live=live)
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
            await wait_stopped(operation, RETRIES.delay(failures))
        raise Stopped

    def _recorded(self, ref: ClaimRef, claim: ResourceClaim, body: Mapping[str, Any], node: str) -> None:
        if claim.status.allocation != Record.model_validate(body):
            self._driver.restore(held(claim, ()))  # a late write of an earlier process: the record counts
        self._unsettled.pop(ref.uid, None)
        self._holdings.put(ref.uid, StandaloneHolding(ref.key, node, AllocationStage.RECORDED))
        log.info("allocated", driver=self._driver.name, claim="/".join(ref.key), node=node)

    async def _undo(self, operation: Operation, refs: Sequence[ClaimRef], why: str) -> None:
        """Releases these claims, except those whose allocation turns out to be recorded."""
        for ref in refs:
            if not await self._recorded_after_all(ref, operation.node):
                await retry_until_done(ref, self._release)
                await self._end_progress(ref, why)

    async def _recorded_after_all(self, ref: ClaimRef, node: str) -> bool:
        """Whether a write of unknown outcome succeeded. If it did not, it can't succeed later."""
        body = self._unsettled.get(ref.uid)
        if body is None:
            return False
        try:
            claim = await retry_until_done(ref, self._records.settle)
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
    """The driver's result. When this raises Stopped or Failed, the call was cancelled and has ended."""
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


async def retry_until_done(ref: ClaimRef, work: Callable[[ClaimRef], Awaitable[T]]) -> T:
    """Repeats the work until it succeeds, because continuing without it would be wrong. Raises Gone."""
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
