"""The extender's HTTP server: one path for each verb. Only the leader answers; other replicas respond with 503."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Protocol

import structlog
from aiohttp import web

from parley.control.telemetry.connections import SCHEDULER, limited
from parley.kube.lease import LeaseLost
from parley.scheduler.extender.wire import BadCall

log = structlog.get_logger(__name__)

LARGEST_CALL = 16 * 1024 * 1024
"""In bytes: a pod of the largest size, and 50,000 nodes with the longest names."""

NO_MORE = "this process does not lead any more"

READING_SECONDS = 10.0
"""How long a call may take to arrive."""

COMPLAINT_SECONDS = 60.0
"""The least time between two lines in the log about calls that are not understood: each of them may be one."""

_LONGEST = 300
"""The most characters of such a line that come from the caller."""

ENDING_SECONDS = 1.0
"""How long calls in progress may take when the process ends: it does not lead any more, so a bind that still waits
is given up."""


class Answering(Protocol):
    """Answers the scheduler's calls; see ExtenderPath."""

    @property
    def verbs(self) -> Sequence[str]: ...
    async def answer(self, verb: str, body: bytes) -> bytes: ...


_JSON = {"Content-Type": "application/json"}

Leading = Callable[[], Answering | None]
"""Returns the extender path if this process leads and its controller is ready."""


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_CALL)


class _Calls:
    """Handles POST /filter, /prioritize, /preempt and /bind; GET /healthz, and /readyz, which is ok on the leader
    only. Without aiohttp's routing, which takes a sixth of the time of a call."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._complained_at = -inf

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """The response to the request."""
        if request.method == "POST":
            return await self._verb(request.path.removeprefix("/"), request)
        if (request.method, request.path) == ("GET", "/healthz"):
            return web.Response(text="ok")
        if (request.method, request.path) == ("GET", "/readyz"):
            return _not_yet() if self._leading() is None else web.Response(text="ok")
        return web.Response(text=f"there is no {request.method} {request.path}", status=404)

    async def _verb(self, name: str, request: web.BaseRequest) -> web.Response:
        extender = self._leading()
        if extender is None:
            return _not_yet()
        if name not in extender.verbs:
            return web.Response(text=f"there is no verb {name}: {', '.join(extender.verbs)}", status=404)
        try:
            async with asyncio.timeout(READING_SECONDS):
                body = await request.read()
        except TimeoutError:
            return web.Response(text=f"the call was not complete within {READING_SECONDS:g} s", status=408)
        try:
            return web.Response(body=await extender.answer(name, body), headers=_JSON)
        except BadCall as error:
            self._complain(name, error)
            return web.Response(text=str(error), status=400)
        except LeaseLost:
            return web.Response(text=NO_MORE, status=503)
        except Exception as error:  # above all a driver's: it has to be logged, and must stop nothing else
            if self._leading() is not extender:
                return web.Response(text=NO_MORE, status=503)
            log.error("a scheduler's call failed", verb=name, error=str(error), exc_info=error)
            return web.Response(text=f"{name} failed: {error}", status=500)

    def _complain(self, verb: str, error: BadCall) -> None:
        """Log a call that is not understood, now and then: kube-scheduler reports the status, and not the text."""
        now = asyncio.get_running_loop().time()
        if now >= self._complained_at + COMPLAINT_SECONDS:
            self._complained_at = now
            log.warning("a scheduler's call is not understood", verb=verb, error=str(error)[:_LONGEST])


def _not_yet() -> web.Response:
    return web.Response(text="this process does not lead", status=503)


@asynccontextmanager
async def serving(
    leading: Leading, host: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serves while the block runs; yields the port, a free one if `port` is 0."""
    handle = _Calls(leading).handle
    async with limited(handle, _request, (host, port), SCHEDULER, context, ENDING_SECONDS) as bound:
        log.info("extender", address=f"{host}:{bound}", tls=context is not None)
        yield bound
