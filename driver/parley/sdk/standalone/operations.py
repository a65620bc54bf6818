"""Allocations and deallocations under way, each in a task of its own, since a driver may take minutes.

A claim has at most one operation at a time. One that raises is logged, and its claims are left alone for a while
that grows with each failure in a row.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from parley.kube.backoff import Backoff
from parley.kube.cache import Key
from parley.kube.client import ApiError, OutcomeUnknown

RETRIES = Backoff(first=0.1, longest=60, jitter=0.2)

log = structlog.get_logger(__name__)


class Retry(Exception):
    """Raised by an operation that failed, has shown why in the API, and is to be tried again."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim that an operation is about."""

    key: Key
    uid: str


@dataclass(eq=False, slots=True)
class Operation:
    """One allocation or deallocation, of all of these claims together.

    `stop` asks it to end soon, with nothing held that is not recorded. `node` is where it allocates, if it does.
    """

    refs: Sequence[ClaimRef]
    node: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)


Work = Callable[[Operation], Awaitable[None]]


class Operations:
    """One driver's operations. `ended` is called when the claims of one are to be reconciled again: after it, or
    after the pause that follows a failure."""

    def __init__(self, ended: Callable[[Operation], None], backoff: Backoff = RETRIES) -> None:
        self._ended = ended
        self._backoff = backoff
        self._by_uid: dict[str, Operation] = {}
        self._failures: dict[str, int] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Operations are tasks of this group from now on."""
        self._tasks = tasks

    def of(self, uid: str) -> Operation | None:
        """The operation about the claim that is under way."""
        return self._by_uid.get(uid)

    def free(self, *uids: str) -> bool:
        """Whether an operation about these claims may start now."""
        return not any(uid in self._by_uid for uid in uids)

    def start(self, operation: Operation, work: Work) -> None:
        """Begin an operation; there must be none about its claims."""
        assert self._tasks is not None, "operations have not begun"
        assert self.free(*(ref.uid for ref in operation.refs)), "there is an operation about one of the claims"
        running = self._run(operation, work)
        try:
            self._tasks.create_task(running)
        except RuntimeError:  # the driver is being stopped
            running.close()
            raise
        for ref in operation.refs:
            self._by_uid[ref.uid] = operation

    def stop(self, uid: str) -> None:
        """The operation about the claim, if there is one, is to end."""
        if (operation := self._by_uid.get(uid)) is not None:
            operation.stop.set()

    def forget(self, uid: str) -> None:
        """The claim is gone: its failures don't matter any more."""
        self._failures.pop(uid, None)

    async def _run(self, operation: Operation, work: Work) -> None:
        try:
            await work(operation)
        except Exception as error:
            await stopped(operation, self._failed(operation, error))  # its claims are left alone as long
        else:
            for ref in operation.refs:
                self.forget(ref.uid)
        finally:
            for ref in operation.refs:
                del self._by_uid[ref.uid]
        self._ended(operation)

    def _failed(self, operation: Operation, error: Exception) -> float:
        """Seconds until the next attempt."""
        failures = 1 + max(self._failures.get(ref.uid, 0) for ref in operation.refs)
        for ref in operation.refs:
            self._failures[ref.uid] = failures
        log.warning(
            "operation failed",
            claims=["/".join(ref.key) for ref in operation.refs],
            failures=failures,
            error=str(error),
            exc_info=not isinstance(error, ApiError | OutcomeUnknown | Retry),
        )
        return self._backoff.delay(failures)


async def cancel(task: asyncio.Future[Any]) -> None:
    """Cancel what runs, and wait until it has ended; how it ended does not matter."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def stopped(operation: Operation, seconds: float) -> None:
    """Wait until the operation is stopped, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await operation.stop.wait()
    except TimeoutError:
        pass  # it goes on
