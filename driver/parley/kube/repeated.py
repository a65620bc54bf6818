"""Writes many objects, and repeats failed writes for a limited time.

A webhook that does not answer fails every write of the objects that it intercepts (500) until its owner repairs
it: code that waited for all of its writes would wait as long.
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
"""The most objects that are written concurrently."""

PATIENCE_SECONDS = 60.0
"""How long failed writes are repeated. Earlier requests have ended in the API server by then, too: that is its
default `--request-timeout`."""

log = structlog.get_logger(__name__)


async def repeated(
    items: Iterable[T], write: Callable[[T], Awaitable[R]]
) -> tuple[list[R], Sequence[tuple[T, Exception]]]:
    """The results of the writes, and the items that could not be written in time, each with its last error. Each
    is tried at least once. All failed items share a pause, during which they occupy no slot."""
    slots, answers = asyncio.Semaphore(AT_ONCE), list[R]()

    async def write_once(item: T) -> tuple[T, Exception] | None:
        async with slots:
            try:
                answers.append(await write(item))
            except (ApiError, OutcomeUnknown) as error:
                return item, error
        return None

    loop, failures, left = asyncio.get_running_loop(), 0, list(items)
    until = loop.time() + PATIENCE_SECONDS
    while True:
        failed = [pair for pair in await asyncio.gather(*map(write_once, left)) if pair is not None]
        if not failed or loop.time() >= until:
            return answers, failed
        failures += 1
        log.warning("not written yet", objects=len(failed), failures=failures, error=str(failed[0][1]))
        await asyncio.sleep(min(RELISTS.delay(failures), until - loop.time()))
        left = [item for item, _ in failed]
