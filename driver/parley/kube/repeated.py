"""Writes to many objects, each repeated while the API server fails over it, but not for ever.

A webhook of somebody else that does not answer fails every write of the objects that it is asked about (500) until
its owner mends it: whoever waited for all of his writes would wait as long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from parley.kube.client import ApiError, OutcomeUnknown
from parley.kube.informer import RELISTS

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 32
"""So many objects are written at the same time."""

PATIENCE_SECONDS = 60.0
"""So long writes are repeated that fail. A request that the API server had before has ended by then, too: its
`--request-timeout` is as long by default."""

log = structlog.get_logger(__name__)


async def repeated(
    items: Iterable[T], write: Callable[[T], Awaitable[R]]
) -> tuple[list[R], Sequence[tuple[T, Exception]]]:
    """The answers to the writes, and what could not be written in that time, with the last error. Each is tried at
    least once. A pause is the same for all, and occupies no place of those that are written at the same time."""
    slots, answers = asyncio.Semaphore(AT_ONCE), list[R]()

    async def tried(item: T) -> tuple[T, Exception] | None:
        async with slots:
            try:
                answers.append(await write(item))
            except (ApiError, OutcomeUnknown) as error:
                return item, error
        return None

    loop, failures, left = asyncio.get_running_loop(), 0, list(items)
    until = loop.time() + PATIENCE_SECONDS
    while True:
        failed = [one for one in await asyncio.gather(*map(tried, left)) if one is not None]
        if not failed or loop.time() >= until:
            return answers, failed
        failures += 1
        log.warning("not written yet", objects=len(failed), failures=failures, error=str(failed[0][1]))
        await asyncio.sleep(min(RELISTS.delay(failures), until - loop.time()))
        left = [item for item, _ in failed]
