"""Server-sent events for open pages: each address is rendered once, however many readers it has.

A page is made again when something in the cluster changed, at most once a second, or after `TICK` seconds, for
ages grow; it is sent only if it differs from the last one. A slow reader gets the latest, and misses what was
between.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from parley.web.links import PageAddress
from parley.web.pages import Page, page
from parley.web.snapshots import Snapshots

TICK = 10.0
LEAST = 1.0
MOST = 64
"""So many streams at once."""
_SHARE = 5
"""Making a page takes at most this part of the time."""


log = structlog.get_logger(__name__)


class TooMany(Exception):
    """Raised if the limit of streams is reached."""


class Feed:
    """The latest version of one page."""

    def __init__(self) -> None:
        self._latest: Page | None = None
        self._new = asyncio.Event()
        self.followers = 0

    def show(self, made: Page) -> None:
        """Publish a new version of the page, if it differs from the last one."""
        if self._latest is None or self._latest.version != made.version:
            self._latest = made
            new, self._new = self._new, asyncio.Event()
            new.set()

    async def other_than(self, version: str) -> Page:
        """The page, as soon as its version differs from this one."""
        while self._latest is None or self._latest.version == version:
            await self._new.wait()
        return self._latest


class Streams:
    """All streams of a server, at most `most`."""

    def __init__(self, snapshots: Snapshots, most: int = MOST) -> None:
        self._snapshots = snapshots
        self._most = most
        self._feeds: dict[tuple[object, ...], tuple[Feed, asyncio.Task[None]]] = {}

    @property
    def followers(self) -> int:
        """The number of open streams."""
        return sum(feed.followers for feed, _ in self._feeds.values())

    @asynccontextmanager
    async def following(self, address: PageAddress) -> AsyncIterator[Feed]:
        """The page's feed, which is kept up to date within the block. Raises TooMany."""
        if self.followers >= self._most:
            raise TooMany
        feed = self._join(address)
        try:
            yield feed
        finally:
            await self._leave(address, feed)

    def _join(self, address: PageAddress) -> Feed:
        if address.key not in self._feeds:
            feed = Feed()
            self._feeds[address.key] = feed, asyncio.create_task(self._make(address, feed))
        feed, _ = self._feeds[address.key]
        feed.followers += 1
        return feed

    async def _leave(self, address: PageAddress, feed: Feed) -> None:
        feed.followers -= 1
        if not feed.followers:
            _, making = self._feeds.pop(address.key)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    async def _make(self, address: PageAddress, feed: Feed) -> None:
        loop = asyncio.get_running_loop()
        while True:
            revision, started = self._snapshots.revision, loop.time()
            try:
                feed.show(await page(self._snapshots, address))
            except Exception:
                log.exception("a page could not be rendered", page="/".join(address.parts))
            pause = max(LEAST, _SHARE * (loop.time() - started))
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, TICK - pause)):
                    await self._snapshots.changed(revision)
