"""Work that may take its time (allocating, taking back), each in a task of its own, so that nobody waits for it.

A claim is worked on by one job at a time. A job that raises is logged, and its claims are left alone for a while
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


class Again(Exception):
    """Raised by work that could not be done, has said so where it matters, and is to be tried again."""


@dataclass(frozen=True, slots=True)
class Part:
    """A claim that a job is about."""

    key: Key
    uid: str


@dataclass(eq=False, slots=True)
class Job:
    """`stop` asks it to end soon, with nothing held that is not recorded. `node` is where it allocates, if it
    does."""

    parts: Sequence[Part]
    node: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)


Work = Callable[[Job], Awaitable[None]]


class Jobs:
    """All jobs. `ended` is called when the claims of one may be looked at again: after it, or after the pause that
    follows a failure."""

    def __init__(self, ended: Callable[[Job], None], backoff: Backoff = RETRIES) -> None:
        self._ended = ended
        self._backoff = backoff
        self._by_uid: dict[str, Job] = {}
        self._failures: dict[str, int] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Jobs are tasks of this group from now on."""
        self._tasks = tasks

    def of(self, uid: str) -> Job | None:
        """The job that is about the claim."""
        return self._by_uid.get(uid)

    def free(self, *uids: str) -> bool:
        """Whether a job about these claims may start now."""
        return not any(uid in self._by_uid for uid in uids)

    def start(self, job: Job, work: Work) -> None:
        """Do the work for claims that are free."""
        assert self._tasks is not None, "jobs have not begun"
        assert self.free(*(part.uid for part in job.parts)), "one of the claims is worked on already"
        running = self._run(job, work)
        try:
            self._tasks.create_task(running)
        except RuntimeError:  # the driver is being stopped
            running.close()
            raise
        for part in job.parts:
            self._by_uid[part.uid] = job

    def stop(self, uid: str) -> None:
        """The job about the claim, if there is one, is to end."""
        if (job := self._by_uid.get(uid)) is not None:
            job.stop.set()

    def forget(self, uid: str) -> None:
        """The claim is gone: its failures don't matter any more."""
        self._failures.pop(uid, None)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            await work(job)
        except Exception as error:
            await stopped(job, self._failed(job, error))  # its claims are left alone as long
        else:
            for part in job.parts:
                self.forget(part.uid)
        finally:
            for part in job.parts:
                del self._by_uid[part.uid]
        self._ended(job)

    def _failed(self, job: Job, error: Exception) -> float:
        """Seconds until the next attempt."""
        failures = 1 + max(self._failures.get(part.uid, 0) for part in job.parts)
        for part in job.parts:
            self._failures[part.uid] = failures
        log.warning(
            "work on claims failed",
            claims=["/".join(part.key) for part in job.parts],
            failures=failures,
            error=str(error),
            exc_info=not isinstance(error, ApiError | OutcomeUnknown | Again),
        )
        return self._backoff.delay(failures)


async def end(task: asyncio.Future[Any]) -> None:
    """Cancel what runs, and wait until it has ended; how it ended does not matter."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def stopped(job: Job, seconds: float) -> None:
    """Wait until the job is stopped, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await job.stop.wait()
    except TimeoutError:
        pass  # it goes on
