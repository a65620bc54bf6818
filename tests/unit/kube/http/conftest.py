"""A server of the test's own behind an HttpClient."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.unit.kube.http.answers import Handler
from tests.unit.kube.http.tls import TlsServer

from parley.kube.credentials import Credentials
from parley.kube.http import HttpClient, HttpOptions


def client_of(host: str, **options: Any) -> HttpClient:
    """A client with the token "token-1"."""

    async def load(configuration: Any) -> None:
        configuration.host = host
        configuration.api_key["BearerToken"] = "Bearer token-1"

    return HttpClient(Credentials(load, "the test's configuration"), HttpOptions(**options))


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def connect(stack: AsyncExitStack) -> Callable[..., Awaitable[HttpClient]]:
    """Makes a client of a server, whether that is there or not."""

    async def connected(host: str, **options: Any) -> HttpClient:
        return await stack.enter_async_context(client_of(host, **options))

    return connected


@pytest.fixture
def host_of(stack: AsyncExitStack) -> Callable[[Handler], Awaitable[str]]:
    """Starts a server that answers every request by the handler; returns its address."""

    async def started(handler: Handler) -> str:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await handler(request)

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handle)
        server = await stack.enter_async_context(TestServer(application))
        return str(server.make_url("")).rstrip("/")

    return started


@pytest.fixture
def serve(
    connect: Callable[..., Awaitable[HttpClient]], host_of: Callable[[Handler], Awaitable[str]]
) -> Callable[..., Awaitable[HttpClient]]:
    """Starts a server that answers every request by the handler; returns a client of it."""

    async def served(handler: Handler, **options: Any) -> HttpClient:
        return await connect(await host_of(handler), **options)

    return served


@pytest.fixture
def serve_raw(
    connect: Callable[..., Awaitable[HttpClient]], stack: AsyncExitStack
) -> Callable[..., Awaitable[HttpClient]]:
    """Starts a server that sends `answer` for each request, then closes the connection.

    The first line of each request is added to `seen`. Returns a client of it.
    """

    async def served(answer: bytes, seen: list[bytes], **options: Any) -> HttpClient:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head.split(b"\r\n")[0])
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await stack.enter_async_context(await asyncio.start_server(talk, "127.0.0.1", 0))
        return await connect(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options)

    return served


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_host(authority: trustme.CA) -> AsyncIterator[str]:
    server = TlsServer(authority)
    yield await server.start()
    await server.stop()


@pytest.fixture
async def plain_tls_host(authority: trustme.CA) -> AsyncIterator[str]:
    server = TlsServer(authority, ssl.CERT_NONE)
    yield await server.start()
    await server.stop()
