"""The way in for schedulers: HTTP, one path a verb. Only a leader answers; the others say so with 503."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog
from aiohttp import web

from parley.kube.lease import LeaseLost
from parley.scheduler.extender.wire import BadCall

log = structlog.get_logger(__name__)

LARGEST_CALL = 16 * 1024 * 1024
"""In bytes: a pod of the largest size, and 50,000 nodes with the longest names."""

NO_MORE = "this process does not lead any more"

ENDING_SECONDS = 1.0
"""So long calls that are under way get when the process ends: it does not lead any more, so that a bind that waits
can only be given up."""


class Answering(Protocol):
    """What answers calls; see ExtenderDoor."""

    @property
    def verbs(self) -> Sequence[str]: ...
    async def answer(self, verb: str, body: bytes) -> bytes: ...


Leading = Callable[[], Answering | None]
"""The door of a process that leads and has begun to act."""


def application(leading: Leading) -> web.Application:
    """POST /filter, /prioritize, /preempt and /bind; GET /healthz, and /readyz, which is ok on the leader only."""

    async def verb(request: web.Request) -> web.Response:
        door = leading()
        if door is None:
            return web.Response(text="this process does not lead", status=503)
        name = request.match_info["verb"]
        if name not in door.verbs:
            return web.Response(text=f"there is no verb {name}: {', '.join(door.verbs)}", status=404)
        try:
            return web.Response(
                body=await door.answer(name, await request.read()), content_type="application/json"
            )
        except BadCall as error:
            return web.Response(text=str(error), status=400)
        except LeaseLost:
            return web.Response(text=NO_MORE, status=503)
        except Exception as error:  # a driver's, above all: it must not be silent, and stops nothing else
            if leading() is not door:
                return web.Response(text=NO_MORE, status=503)
            log.error("a scheduler's call failed", verb=name, error=str(error), exc_info=error)
            return web.Response(text=f"{name} failed: {error}", status=500)

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if leading() is not None else web.Response(text="does not lead", status=503)

    app = web.Application(client_max_size=LARGEST_CALL)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_post("/{verb}", verb)
    return app


@asynccontextmanager
async def serving(
    leading: Leading, host: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve within the block; gives the port, a free one if 0 was asked for."""
    runner = web.AppRunner(application(leading), access_log=None, shutdown_timeout=ENDING_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        bound: int = runner.addresses[0][1]
        log.info("extender", address=f"{host}:{bound}", tls=context is not None)
        yield bound
    finally:
        await runner.cleanup()
