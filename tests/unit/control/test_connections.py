"""Whoever opens connections and does nothing with them keeps nobody out, and no file open for long."""

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from parley.cli.endpoints import application, served
from parley.control.telemetry.connections import ANYBODY, ConnectionLimits, allow_many_files, limited, limited_app

HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Opens connections on which nothing is said, and closes all at the end."""

    def __init__(self) -> None:
        self.opened: list[Streams] = []

    async def __call__(self, port: int, count: int = 1) -> list[Streams]:
        made = await asyncio.gather(*(asyncio.open_connection(HOST, port) for _ in range(count)))
        self.opened.extend(made)
        return made


@pytest.fixture
async def idle() -> AsyncIterator[Clients]:
    """What opens connections."""
    clients = Clients()
    yield clients
    for _, writer in clients.opened:
        writer.transport.abort()
    await asyncio.sleep(0)


async def closed(streams: Streams) -> bool:
    """Whether the other side closed it; what it still had to say is read."""
    try:
        await streams[0].read()
    except ConnectionError:
        pass  # closed without a word
    return streams[0].at_eof() or streams[0].exception() is not None


def is_open(client: socket.socket) -> bool:
    """Whether the other side left it so. Nothing was sent to it."""
    client.setblocking(False)
    try:
        return bool(client.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def ask(streams: Streams, path: str = "/") -> bytes:
    reader, writer = streams
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


@asynccontextmanager
async def small(limits: ConnectionLimits, gate: asyncio.Event | None = None) -> AsyncIterator[int]:
    """A server that says "ok", once the gate is open."""

    async def answer(_: web.Request) -> web.Response:
        if gate is not None:
            await gate.wait()
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    async with limited_app(app, 0, HOST, limits) as port:
        yield port


async def test_the_oldest_idle_connection_makes_room(idle: Clients) -> None:
    async with small(ConnectionLimits(most=3)) as port:
        first, *others = await idle(port, 3)
        assert await ask(first) == b"ok"  # now idle for less long than the others

        newcomer, *_ = await idle(port, 1)

        assert await closed(others[0])
        assert await ask(newcomer) == b"ok"
        assert await ask(first) == b"ok"
        assert await ask(others[1]) == b"ok"


async def test_of_connections_that_come_at_once_no_more_stay_than_may(idle: Clients) -> None:
    async with small(ConnectionLimits(most=20)) as port:
        at_once = [socket.create_connection((HOST, port)) for _ in range(100)]  # the loop accepts all in one go
        await asyncio.sleep(0.2)
        try:
            assert sum(map(is_open, at_once)) == 20
            (newcomer,) = await idle(port, 1)
            assert await ask(newcomer) == b"ok"
            assert sum(map(is_open, at_once)) == 19
        finally:
            for one in at_once:
                one.close()


async def test_who_is_being_answered_is_left_alone(idle: Clients) -> None:
    gate = asyncio.Event()
    async with small(ConnectionLimits(most=2), gate) as port:
        busy = await idle(port, 2)
        answers = [asyncio.create_task(ask(one)) for one in busy]
        await arrived(busy, answers)

        newcomer, *_ = await idle(port, 1)

        assert await closed(newcomer)
        gate.set()
        assert await asyncio.gather(*answers) == [b"ok", b"ok"]


async def arrived(streams: list[Streams], answers: list["asyncio.Task[bytes]"]) -> None:
    """The requests are in the server's hands: both ends are on this loop, so some turns of it will do."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert not any(answer.done() for answer in answers)
    assert len(streams) == len(answers)


async def test_a_connection_that_may_be_in_use_is_spared_and_the_new_one_refused(idle: Clients) -> None:
    async with small(ConnectionLimits(most=2, spared=60)) as port:
        known = await idle(port, 2)

        newcomer, *_ = await idle(port, 1)

        assert await closed(newcomer)
        assert [await ask(one) for one in known] == [b"ok", b"ok"]


async def test_an_idle_connection_and_a_slow_request_are_closed_after_a_while(idle: Clients) -> None:
    async with small(ConnectionLimits(idle=0.0)) as port:
        silent, slow = await idle(port, 2)
        slow[1].write(b"GET / HTTP/1.1\r\nHost:")

        assert await closed(silent)
        assert await closed(slow)


async def test_headers_have_a_limit(idle: Clients) -> None:
    async with small(ANYBODY) as port:
        reader, writer = (await idle(port, 1))[0]
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n")

        assert b" 400 " in await reader.readline()


async def test_requests_that_make_no_sense_do_not_fill_the_log(
    idle: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    async with small(ANYBODY) as port:
        for reader, writer in await idle(port, 20):
            writer.write(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 10_000 + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()

    assert len(caplog.records) == 1


async def test_a_server_without_routes_is_limited_alike(idle: Clients) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    def request(message, payload, protocol, writer, task):  # type: ignore[no-untyped-def]
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async with limited(answer, request, (HOST, 0), ConnectionLimits(most=1)) as port:
        first, second = await idle(port, 2)

        assert await closed(first)
        assert await ask(second) == b"ok"


async def test_who_does_not_read_answers_does_not_hold_up_the_end_of_the_process(idle: Clients) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 4_000_000)

    app = web.Application()
    app.router.add_get("/", answer)
    started = time.monotonic()
    async with limited_app(app, 0, HOST) as port:
        ((_, writer),) = await idle(port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() * 4)
        await asyncio.sleep(0.2)

    assert time.monotonic() - started < 40.0


@pytest.fixture
def many_files() -> None:
    allow_many_files()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 8_000:
        pytest.fail("the test opens 3,000 connections: raise the hard limit of open files to 8,000")


async def test_a_flood_of_idle_connections_keeps_no_probe_out(many_files: None) -> None:
    opened: list[socket.socket] = []

    def flood(port: int) -> None:
        """In a thread of its own, as another process would."""
        for _ in range(3_000):
            opened.append(socket.create_connection((HOST, port)))

    async with served(application(lambda: "", CollectorRegistry()), 0, HOST) as port:
        flooding, slowest = asyncio.create_task(asyncio.to_thread(flood, port)), 0.0
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            while not flooding.done():
                slowest = max(slowest, await probed(session, port))
            slowest = max(slowest, await probed(session, port))
        await flooding
        for one in opened:
            one.close()

    assert len(opened) == 3_000
    assert slowest < 40.0  # without the limits nobody was answered at all


async def probed(session: aiohttp.ClientSession, port: int) -> float:
    """Seconds until /healthz said that it is well."""
    started = time.monotonic()
    async with session.get(f"http://{HOST}:{port}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok")
    return time.monotonic() - started
