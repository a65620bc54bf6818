"""What a controller serves over HTTP: `/metrics`, `/healthz` (the process works) and `/readyz` (it can take
over, or leads and hears of all changes)."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from parley.control.telemetry.connections import limited_app
from parley.control.telemetry.exposition import CONTENT_TYPE, Exposition

Unready = Callable[[], str]
"""What is in the way, in words; "" if nothing is."""


def process_figures() -> CollectorRegistry:
    """A registry with memory, CPU time and open files of this process, to which metrics can be added."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def application(unready: Unready, registry: CollectorRegistry) -> web.Application:
    """The routes. An event loop that is stuck answers none of them, which is what `/healthz` is for."""

    exposition = Exposition(registry, time.monotonic)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_request: web.Request) -> web.Response:
        why = unready()
        return web.Response(text=f"not ready: {why}", status=503) if why else web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


@asynccontextmanager
async def served(app: web.Application, port: int, host: str | None = None) -> AsyncIterator[int]:
    """Serve on `host`, or on all addresses, within the block; gives the port, a free one if 0 was asked for."""
    async with limited_app(app, port, host) as bound:
        yield bound
