"""Limits number and idle time of the connections of an HTTP server, so that no client can keep others out.

A connection on which a request is being answered is left alone. The others are idle: nothing was sent yet, a
request is not complete, or another one may follow. At the limit, the longest idle one is closed for a new one, and
each is closed after some time: a slow request counts as none.
"""

import asyncio
import logging
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from parley.control.telemetry.handshakes import Handshakes

_SWEEP_SECONDS = 1.0
_LINGERING_SECONDS = 2.0
"""The time for which the rest of a request is read after its answer, so that the client sees the answer."""

_ENDING_SECONDS = 1.0
"""The time that clients have to read their answers when a server without calls under way ends."""

_BACKLOG = 512
"""Connections that wait to be accepted, and are accepted at once: fewer than `ConnectionLimits.most`, so that each
can send a request before it is closed for others. Further ones are accepted a second later at the earliest."""

_MOST_FILES = 65_536
_LOG_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server: `most` connections at a time (or half of the files that the process may open), each
    closed when it was idle for `idle` seconds. One that is idle for less than `spared` seconds is not closed for a
    new one, which is closed instead. Over TLS, up to `handshakes` more may be in their handshakes, and do not
    count yet."""

    most: int = 1024
    idle: float = 30.0
    spared: float = 0.0
    handshakes: int = 700


ANYBODY = ConnectionLimits()
"""For servers open to all clients: probes, scrapers, readers of the page, and others."""

SCHEDULER = ConnectionLimits(most=2048, idle=3700.0, spared=120.0)
"""For a kube-scheduler: it closes connections that it did not use for 90 s, and an error on one that it uses costs
a pod a back-off. A burst of a thousand bindings opens up to 660."""


class _Connection(asyncio.Protocol):
    """One connection, as aiohttp's protocol sees it."""

    __slots__ = ("_limiter", "busy", "inner", "since", "transport")

    def __init__(self, limiter: "ConnectionLimiter", inner: web.RequestHandler) -> None:
        self._limiter = limiter
        self.inner = inner
        self.busy = 0
        self.since = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.inner.connection_made(transport)
        self._limiter.opened(self.inner, self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limiter.closed(self.inner, self)
        if self.transport is not None:  # otherwise it was lost just when its handshake had ended
            self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class ConnectionLimiter:
    """Makes the protocols of a server's connections, and closes those that are too many or idle for too long."""

    def __init__(self, server: web.Server, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self._server = server
        self._limits = limits
        self._most = min(limits.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._clock = clock
        self._open: dict[object, _Connection] = {}
        self._idle: dict[_Connection, None] = {}
        """The longest idle first."""

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Connection(self, self._server())

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, inner: object, connection: _Connection) -> None:
        """Count a new connection; beyond the limit, close one."""
        full = len(self._open) >= self._most
        self._open[inner] = connection
        oldest = next(iter(self._idle), None)
        self._set_idle(connection)
        if not full:
            return
        spare = oldest is None or self._clock() - oldest.since < self._limits.spared
        self._close(connection if spare or oldest is None else oldest)

    def _close(self, connection: _Connection) -> None:
        """Close the connection, and stop counting it: each of hundreds of new ones closes another one."""
        connection.abort()
        self.closed(connection.inner, connection)

    def closed(self, inner: object, connection: _Connection) -> None:
        """Stop counting a connection that was closed, by either side."""
        self._open.pop(inner, None)
        self._idle.pop(connection, None)

    def _set_idle(self, connection: _Connection) -> None:
        connection.since = self._clock()
        self._idle[connection] = None

    @contextmanager
    def answering(self, protocol: object) -> Iterator[None]:
        """Count the connection (aiohttp's `request.protocol`) as busy while the block answers a request."""
        connection = self._open.get(protocol)
        if connection is None:  # closed already
            yield
            return
        connection.busy += 1
        self._idle.pop(connection, None)
        try:
            yield
        finally:
            connection.busy -= 1
            if not connection.busy and protocol in self._open:
                self._set_idle(connection)

    def sweep(self) -> None:
        """Close the connections that were idle for too long."""
        before = self._clock() - self._limits.idle
        for connection in [idle for idle in self._idle if idle.since <= before]:
            self._close(connection)

    async def sweeping(self) -> None:
        """Sweep every second, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()


Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def limited_app(
    app: web.Application, port: int, host: str | None = None, limits: ConnectionLimits = ANYBODY
) -> AsyncIterator[int]:
    """Serve an application within the block; gives the port, a free one if 0 was asked for."""
    limiters: list[ConnectionLimiter] = []

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        with limiters[0].answering(request.protocol):
            return await handler(request)

    app.middlewares.insert(0, counted)
    runner = web.AppRunner(
        app,
        access_log=None,
        lingering_time=_LINGERING_SECONDS,
        logger=_rate_limited_logger(),
        shutdown_timeout=_ENDING_SECONDS,
    )
    async with _listening(runner, limiters, port, host, limits) as bound:
        yield bound


@asynccontextmanager
async def limited(
    answer: Answer,
    request_factory: Callable[..., web.BaseRequest],
    address: tuple[str, int],
    limits: ConnectionLimits,
    context: ssl.SSLContext | None = None,
    ending_seconds: float = 60.0,
) -> AsyncIterator[int]:
    """Serve requests without routes within the block; gives the port. Answers under way get `ending_seconds`."""
    limiters: list[ConnectionLimiter] = []

    async def counted(request: web.BaseRequest) -> web.StreamResponse:
        with limiters[0].answering(request.protocol):
            return await answer(request)

    server = web.Server(counted, request_factory=request_factory, access_log=None, logger=_rate_limited_logger())
    runner = web.ServerRunner(server, shutdown_timeout=ending_seconds)
    async with _listening(runner, limiters, address[1], address[0], limits, context) as bound:
        yield bound


def _rate_limited_logger() -> logging.Logger:
    """aiohttp's log of invalid or failed requests, at most a line in 10 s: any client can make such requests."""
    clock, next_one = asyncio.get_running_loop().time, float("-inf")

    def due(_: logging.LogRecord) -> bool:
        nonlocal next_one
        due = clock() >= next_one
        if due:
            next_one = clock() + _LOG_EVERY
        return due

    made = logging.Logger("aiohttp.server")
    made.parent = logging.getLogger("aiohttp.server")
    made.addFilter(due)
    return made


@asynccontextmanager
async def _listening(
    runner: web.AppRunner | web.ServerRunner,
    limiters: list[ConnectionLimiter],
    port: int,
    host: str | None,
    limits: ConnectionLimits,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    await runner.setup()
    try:
        assert runner.server is not None
        limiter = ConnectionLimiter(runner.server, limits, loop.time)
        limiters.append(limiter)
        handshakes = Handshakes(limiter, context, limits.handshakes) if context is not None else None
        listening = await loop.create_server(handshakes or limiter, host, port, backlog=_BACKLOG)
        sweeping = asyncio.create_task(limiter.sweeping())
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
            sweeping.cancel()
            if handshakes is not None:
                await handshakes.end()
    finally:
        await runner.cleanup()


def allow_many_files() -> None:
    """Raise the limit of open files as far as this process may: 1,024 is often the default, not the maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
