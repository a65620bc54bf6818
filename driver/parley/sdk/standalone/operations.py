"""Allocations and deallocations under way, each in a task of its own, since a driver may take minutes.

A claim has at most one operation at a time. An operation that raises is logged, and its claims get no other one
until a back-off is over.
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
    """Raised by an operation that failed, has reported the reason in the API, and is to be retried."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim by namespace, name and UID."""

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
    """One driver's operations. `ended` is called when an operation's claims are to be reconciled again: after it
    succeeded, or after the back-off that follows a failure."""

    def __init__(self, ended: Callable[[Operation], None], backoff: Backoff = RETRIES) -> None:
        self._ended = ended
        self._backoff = backoff
        self._by_uid: dict[str, Operation] = {}
        self._failures: dict[str, int] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Sets the task group in which operations run."""
        self._tasks = tasks

    def of(self, uid: str) -> Operation | None:
        """The operation under way for the claim, if there is one."""
        return self._by_uid.get(uid)

    def free(self, *uids: str) -> bool:
        """Whether no operation is under way for any of these claims."""
        return not any(uid in self._by_uid for uid in uids)

    def start(self, operation: Operation, work: Work) -> None:
        """Starts an operation; its claims must be free."""
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
        """Asks the operation under way for the claim, if there is one, to end."""
        if (operation := self._by_uid.get(uid)) is not None:
            operation.stop.set()

    def forget(self, uid: str) -> None:
        """Forgets the failures of a claim that is gone, or whose operation succeeded."""
        self._failures.pop(uid, None)

    async def _run(self, operation: Operation, work: Work) -> None:
        try:
            await work(operation)
        except Exception as error:
            await wait_stopped(operation, self._failed(operation, error))  # its claims stay occupied meanwhile
        else:
            for ref in operation.refs:
                self.forget(ref.uid)
        finally:
            for ref in operation.refs:
                del self._by_uid[ref.uid]
        self._ended(operation)

    def _failed(self, operation: Operation, error: Exception) -> float:
        """Counts and logs a failure. Returns the seconds until the next attempt."""
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
    """Cancels the task and waits until it has ended; ignores its result or exception."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def wait_stopped(operation: Operation, seconds: float) -> None:
    """Waits until the operation is asked to stop, for at most so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await operation.stop.wait()
    except TimeoutError:
        pass  # not stopped
