"""A small HTTP server for probes and scrapes: one GET on each connection, which is then closed.

Whoever can connect must not keep the kubelet's probe out: a connection has a few seconds, and when there are too
many, one of the address that has most is closed for the new one. An event loop that is stuck answers nothing: that
is what the probe is for.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

MOST: Final = 128
"""The most connections at a time: more than a node's default limit of pods."""

LIMIT: Final = 5.0
"""Seconds for a connection, including the answer."""

_LONGEST = 8192
"""The most bytes of a request's head."""


class PortRefused(Exception):
    """Raised if the port cannot be served on."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response."""

    text: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"

    def encoded(self) -> bytes:
        """The response as bytes of HTTP/1.1."""
        body = self.text.encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


Routes = Mapping[str, Callable[[], Awaitable[Reply]]]
"""The handlers, by path."""


@asynccontextmanager
async def endpoint(routes: Routes, port: int, host: str | None = None) -> AsyncIterator[int]:
    """Serve on `host`, or on all addresses, within the block; yields the port, a free one if `port` is 0. Raises
    PortRefused if it is taken."""
    connections = _Connections(routes)
    try:
        server = await asyncio.start_server(connections.serve, host, port, limit=_LONGEST)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise PortRefused(f"cannot serve at port {port}: {why}: give another one in --metrics-port") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.abort()


class _Connections:
    """The open connections with their addresses, oldest first."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._open: dict[asyncio.StreamWriter, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST:
            self._make_room()
        peer = writer.get_extra_info("peername")
        self._open[writer] = peer[0] if peer else ""
        try:
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(LIMIT):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write((await self._reply(head)).encoded())
                    await writer.drain()
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_room(self) -> None:
        numbers = Counter(self._open.values())
        oldest = max(self._open, key=lambda writer: numbers[self._open[writer]])  # the first of several
        del self._open[oldest]
        oldest.transport.abort()

    async def _reply(self, head: bytes) -> Reply:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        route = self._routes.get(rest.partition(" ")[0].partition("?")[0])
        if route is None:
            return Reply(f"there are {', '.join(self._routes)}\n", HTTPStatus.NOT_FOUND)
        if method != "GET":
            return Reply("GET only\n", HTTPStatus.METHOD_NOT_ALLOWED)
        return await route()

    def abort(self) -> None:
        for writer in [*self._open]:
            writer.transport.abort()
