"""A proxy before the API server, for one program: it knows every request, and can cut, hold or spoil what passes.

The program speaks plain HTTP to it, with its own token. What is on its way when the proxy is shut stays there,
and goes on when it opens again, even if nobody waits for the answer any more: as in a network that was cut.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from parley.kube import credentials
from parley_devcluster import kubeconfig

_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})
_REFUSALS: Final = {429: "TooManyRequests", 503: "ServiceUnavailable"}


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a request: seconds until it is passed on, and until its answer is; instead of either, the
    connection is cut; or the proxy refuses it itself with the code. A watch is cut after `lives` seconds. One that
    is `held` arrives when the proxy is reopened."""

    arrives_after: float = 0.0
    answered_after: float = 0.0
    cut_before: bool = False
    cut_after: bool = False
    refused: int = 0
    lives: float | None = None
    held: bool = False


@dataclass(slots=True)
class Seen:
    """A request: when it came (monotonic clock) and what was answered by the server, 0 before that."""

    method: str
    path: str
    came: float
    status: int = 0

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


FAIR: Final = Fate()


class Proxy:
    """`judge` gives each request its fate, by method and path; `seen` has all requests so far."""

    def __init__(self, account: Path) -> None:
        """`account` is the kubeconfig of the program, with a token."""
        self._account = account
        self._credentials = credentials.kubeconfig(str(account))
        self._open = asyncio.Event()
        self._open.set()
        self._reopened = asyncio.Event()
        self._idle = asyncio.Condition()
        self._under_way = 0
        self._session: aiohttp.ClientSession
        self.judge: Callable[[str, str], Fate] = lambda _method, _path: FAIR
        self.seen: list[Seen] = []
        self.kubeconfig = account.with_name(f"{account.name}-by-proxy")
        """Names the proxy as the server."""

    @classmethod
    @asynccontextmanager
    async def serve(cls, account: Path) -> AsyncGenerator[Self, None]:
        """A proxy within the block."""
        proxy = cls(account)
        await proxy._credentials.refresh()
        connector = aiohttp.TCPConnector(ssl=proxy._credentials.tls or False, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as proxy._session:
            runner = web.AppRunner(proxy._application(), access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                proxy._name(f"http://127.0.0.1:{runner.addresses[0][1]}")
                yield proxy
            finally:
                await runner.cleanup()

    def shut(self) -> None:
        """Let nothing through, in neither direction."""
        self._open.clear()

    async def reopen(self) -> None:
        """Let go on what is on its way; returns when all of that but watches has arrived or failed."""
        self._open.set()
        self._reopened.set()
        async with self._idle:
            await self._idle.wait_for(lambda: not self._under_way)

    def writes_since(self, moment: float) -> list[Seen]:
        """The writes that came after that moment."""
        return [seen for seen in self.seen if seen.is_write and seen.came > moment]

    def _name(self, server: str) -> None:
        document = yaml.safe_load(self._account.read_text())
        document["clusters"][0]["cluster"] = {"server": server}
        kubeconfig.write(self.kubeconfig, document)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.raw_path, time.monotonic())
        self.seen.append(seen)
        fate = self.judge(seen.method, seen.path)
        if "watch=true" in seen.path:
            return await self._watch(request, fate)
        self._under_way += 1
        try:
            return await self._pass(request, seen, fate)
        finally:
            async with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    async def _pass(self, request: web.Request, seen: Seen, fate: Fate) -> web.StreamResponse:
        body = await request.read()
        if fate.refused:
            return _refusal(fate.refused)
        await asyncio.sleep(fate.arrives_after)
        if fate.held:
            await self._reopened.wait()
        await self._open.wait()
        if fate.cut_before:
            return _cut(request)
        try:
            async with self._forward(request, body) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _cut(request)
        seen.status = answer.status
        await asyncio.sleep(fate.answered_after)
        await self._open.wait()
        if fate.cut_after:
            return _cut(request)
        return web.Response(status=answer.status, body=content, headers=_headers(answer.headers))

    async def _watch(self, request: web.Request, fate: Fate) -> web.StreamResponse:
        if fate.refused:
            return _refusal(fate.refused)
        await self._open.wait()
        try:
            async with asyncio.timeout(fate.lives), self._forward(request, b"") as answer:
                response = web.StreamResponse(status=answer.status, headers=_headers(answer.headers))
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await self._open.wait()
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError: the watch has lived long enough
            return _cut(request)

    def _forward(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":
        url = URL(f"{self._credentials.host}{request.raw_path}", encoded=True)
        unlimited = aiohttp.ClientTimeout(total=None)
        headers = _headers(request.headers)
        return self._session.request(request.method, url, data=body or None, headers=headers, timeout=unlimited)


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _refusal(code: int) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": _REFUSALS[code]}
    text = json.dumps({**status, "message": "the proxy says so"})
    return web.Response(status=code, text=text, content_type="application/json", headers={"Retry-After": "1"})
