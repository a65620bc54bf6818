"""The HTTP server: pages, data, streams and files. GET and HEAD only, no cookies, nothing from elsewhere.

Everybody who can connect can read: there is no authentication here. A web page of another site that a reader's
browser has open can't read this one: no other origin is allowed to, and a name that is not this server's own is
refused, so that DNS rebinding does not help.
"""

import asyncio
from collections.abc import Collection, Mapping
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from urllib.parse import urlsplit

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from parley.web.links import Links, PageAddress, address
from parley.web.pages import UNAVAILABLE, data, page
from parley.web.snapshots import Snapshots
from parley.web.streams import MOST, Feed, Streams, TooMany

MOST_PAGES = 32
"""So many pages are made or wait to be made at once, besides those of streams."""

ALIVE = 5.0
"""Seconds after which a stream without changes sends a comment, which also shows whether its reader is still
there."""

_METHODS = ("GET", "HEAD")
_AGAIN = {"Retry-After": "10"}
_BUSY = "too many readers: try again in a moment"
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "parley",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def application(
    snapshots: Snapshots, names: Collection[str] = (), most_streams: int = MOST, alive: float = ALIVE
) -> web.Application:
    """The server. `names` are those by which it may be asked for, besides addresses and localhost. The
    caller closes the snapshots, after the server."""
    server = _Server(snapshots, Streams(snapshots, most_streams), alive)
    known = frozenset(name.lower() for name in names)

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in _METHODS:
            raise web.HTTPMethodNotAllowed(request.method, _METHODS)
        if not own_name(request.host, known):
            text = f"this server is not known as {request.host!r}: name it with --web-host (docs/web.md)"
            raise web.HTTPMisdirectedRequest(text=text)
        return await handler(request)

    app = web.Application(middlewares=[guarded])
    app.on_response_prepare.append(_harden)
    app.on_shutdown.append(server.end)
    app.router.add_get("/static/{name}", server.file)
    app.router.add_get("/{path:.*}", server.answer)
    return app


async def _harden(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers[name] = value


def own_name(host: str, known: Collection[str]) -> bool:
    """Whether a Host header is an address, localhost, or a known name. A name that an attacker's server resolves
    to this machine is none of these."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
        return name == "localhost" or name in known or bool(ip_address(name))
    except ValueError:
        return False


class _Server:
    def __init__(self, snapshots: Snapshots, streams: Streams, alive: float) -> None:
        self._snapshots = snapshots
        self._alive = alive
        self._streams = streams
        self._pages = 0
        self._open: set[asyncio.Task[object]] = set()
        folder = files("parley.web") / "static"
        self._files = {file.name: file.read_bytes() for file in folder.iterdir()}

    async def end(self, _: web.Application) -> None:
        """End all streams, so that stopping the server does not wait for its readers."""
        for task in self._open:
            task.cancel()

    async def file(self, request: web.Request) -> web.StreamResponse:
        """A file beside the pages."""
        name = request.match_info["name"]
        content = self._files.get(name)
        if content is None:
            raise web.HTTPNotFound
        kind = _TYPES[name.rpartition(".")[2]]
        return _tagged(request, content, kind, sha256(content).hexdigest()[:32])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A page, in the form that `format` names: HTML if it names none."""
        wanted = address(request.rel_url.raw_path, request.query)
        form = request.query.get("format", "html")
        if form == "stream":
            return await self._stream(request, wanted)
        if form not in ("html", "json"):
            raise web.HTTPBadRequest(text="format is html, json or stream")
        if self._pages >= MOST_PAGES:
            raise web.HTTPServiceUnavailable(text=_BUSY, headers=_AGAIN)
        self._pages += 1
        try:
            return await (self._json(wanted) if form == "json" else self._html(request, wanted))
        finally:
            self._pages -= 1

    async def _html(self, request: web.Request, wanted: PageAddress) -> web.Response:
        made = await page(self._snapshots, wanted)
        content = made.whole(Links(wanted)).encode()
        response = _tagged(request, content, "text/html", made.version, made.status)
        if made.status == UNAVAILABLE:
            response.headers.update(_AGAIN)
        return response

    async def _json(self, wanted: PageAddress) -> web.Response:
        status, content = await data(self._snapshots, wanted)
        headers = {"Cache-Control": "no-store"}
        return web.Response(body=content, status=status, content_type="application/json", headers=headers)

    async def _stream(self, request: web.Request, wanted: PageAddress) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        task = asyncio.current_task()
        assert task is not None
        try:
            async with self._streams.following(wanted) as feed:
                await response.prepare(request)
                self._open.add(task)
                if request.method == "GET":
                    await _send_changes(response, feed, request.query.get("version", ""), self._alive)
        except TooMany:
            raise web.HTTPServiceUnavailable(text=_BUSY, headers=_AGAIN) from None
        except ConnectionError:
            pass  # the reader went
        finally:
            self._open.discard(task)
        return response


async def _send_changes(response: web.StreamResponse, feed: Feed, version: str, alive: float) -> None:
    """Send each change of the page until the reader disconnects, or the server ends."""
    while True:
        try:
            async with asyncio.timeout(alive):
                made = await feed.other_than(version)
        except TimeoutError:
            await response.write(b":\n\n")
            continue
        version = made.version
        event = orjson.dumps({"title": made.title, "main": made.main, "version": version})
        await response.write(b"data: " + event + b"\n\n")


def _tagged(request: web.Request, content: bytes, kind: str, tag: str, status: int = 200) -> web.Response:
    """A response that browsers may cache, but revalidate each time. Errors are always sent in full."""
    headers = {"Cache-Control": "private, no-cache", "ETag": f'"{tag}"'}
    known = {found.value for found in request.if_none_match or ()}
    if status == 200 and tag in known:
        return web.Response(status=304, headers=headers)
    return web.Response(body=content, status=status, content_type=kind, charset="utf-8", headers=headers)
