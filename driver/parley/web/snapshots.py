"""Snapshots to explain from: made of the informers' caches on request, in a thread of their own, and not too
often.

Nothing is watched before the first request, nor `IDLE` seconds after the last. A snapshot is replaced only when
something changed, at most once a second, and so seldom that making snapshots takes a tenth of a processor at most.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog

from parley.explain.errors import Unanswerable, readable_errors
from parley.explain.snapshot import Snapshot, read
from parley.kube.client import Client
from parley.kube.clock import Clock, utc
from parley.web.informers import WatchedKinds

T = TypeVar("T")

IDLE = 600.0
PATIENCE = 10.0
"""Seconds that a request waits for the first lists."""
_LEAST = 1.0
_SHARE = 10

log = structlog.get_logger(__name__)


class StillReading(Unanswerable):
    """Raised while the cluster is being listed for the first time."""


class SlowWork(Protocol):
    """Runs slow work, one call after the other."""

    async def __call__(self, make: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `make()`."""
        ...


class Thread:
    """Runs work in its own thread, so that the process does not wait for it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "parley-web")

    async def __call__(self, make: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `make()`, run in an event loop of that thread."""

        async def main() -> T:
            return await make()

        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: asyncio.run(main()))

    def close(self) -> None:
        """Drop work that has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def here(make: Callable[[], Awaitable[T]]) -> T:
    """Runs work in the caller's event loop."""
    return await make()


class Snapshots:
    """The cluster as `client` sees it; `namespace` is read where it may not see all.

    `revision` rises with every change that may show on a page.
    """

    def __init__(
        self, client: Client, namespace: str, *, clock: Clock = utc, aside: SlowWork = here, idle: float = IDLE
    ) -> None:
        self.client = client
        self.aside = aside
        self.revision = 0
        self._namespace = namespace
        self._clock = clock
        self._idle = idle
        self._changes = asyncio.Event()
        self._making = asyncio.Lock()
        self._watched: WatchedKinds | None = None
        self._watching: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._made: tuple[int, Snapshot] | None = None
        self._next = 0.0

    @property
    def watching(self) -> bool:
        """Whether the informers run now."""
        return self._watching is not None

    async def changed(self, since: int) -> None:
        """Return when `revision` is not `since` any more."""
        while self.revision == since:
            await self._changes.wait()

    async def snapshot(self) -> Snapshot:
        """The current snapshot. Raises Unanswerable if the cluster can't be read, StillReading for the first
        seconds."""
        watched = self._needed()
        try:
            async with asyncio.timeout(PATIENCE):
                await watched.answered()
        except TimeoutError:
            raise StillReading("the cluster is still being read: this takes a moment in a large one") from None
        async with self._making:
            made = self._made
            if made is None or made[0] != self.revision:
                made = self._made = await self._make(watched)
            return replace(made[1], now=self._clock())

    @property
    def trouble(self) -> str:
        """Why the snapshot may be outdated, as a sentence; "" if it is not."""
        if self._watched is None or (error := self._watched.trouble) is None:
            return ""
        try:
            with readable_errors():
                raise error
        except Unanswerable as unanswerable:
            return str(unanswerable)

    async def close(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def _needed(self) -> WatchedKinds:
        loop = asyncio.get_running_loop()
        self._asked = loop.time()
        if self._watched is None:
            self._watched = WatchedKinds(self.client, self._namespace, self._change)
            self._watching = loop.create_task(self._watch(self._watched))
        return self._watched

    def _change(self) -> None:
        self.revision += 1
        changes, self._changes = self._changes, asyncio.Event()
        changes.set()

    async def _watch(self, watched: WatchedKinds) -> None:
        """Run the informers until there was no request for a while. A failure is not shown: the next request
        starts over."""
        loop = asyncio.get_running_loop()
        running = loop.create_task(watched.run())
        try:
            while not running.done() and (left := self._asked + self._idle - loop.time()) > 0:
                await asyncio.wait([running], timeout=left)
            if running.done():
                log.error("the page's watches ended", error=repr(running.exception()))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._watched = self._watching = self._made = None

    async def _make(self, watched: WatchedKinds) -> tuple[int, Snapshot]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next - loop.time()))
        revision, client, now = self.revision, watched.cached_client(self.client), self._clock()
        started = loop.time()
        with readable_errors():
            snapshot = await self.aside(lambda: read(client, now, self._namespace))
        self._next = loop.time() + max(_LEAST, _SHARE * (loop.time() - started))
        return revision, snapshot
