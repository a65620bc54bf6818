"""A container registry that keeps what is pushed in memory: as much of the distribution API as a push needs."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class Registry:
    """Its images' blobs by digest, and their manifests by repository and tag."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self._uploads: list[bytearray] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address, as long as it serves there."""
        app = web.Application(client_max_size=2**30)
        uploads = r"/v2/{name:.+}/blobs/uploads/"
        app.router.add_get("/v2/", self._here)
        app.router.add_post(uploads, self._begin)
        app.router.add_patch(uploads + r"{number:\d+}", self._append)
        app.router.add_put(uploads + r"{number:\d+}", self._end)
        app.router.add_head(r"/v2/{name:.+}/blobs/{digest}", self._has)
        app.router.add_get(r"/v2/{name:.+}/manifests/{tag}", self._named)
        app.router.add_put(r"/v2/{name:.+}/manifests/{tag}", self._name)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            yield f"{host}:{port}"
        finally:
            await runner.cleanup()

    async def _here(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _has(self, request: web.Request) -> web.Response:
        content = self.blobs.get(request.match_info["digest"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def _begin(self, request: web.Request) -> web.Response:
        self._uploads.append(bytearray())
        return web.Response(status=202, headers={"Location": f"{request.path}{len(self._uploads) - 1}"})

    async def _append(self, request: web.Request) -> web.Response:
        upload = self._uploads[int(request.match_info["number"])]
        upload += await request.read()
        sent = {"Location": request.path, "Range": f"0-{len(upload) - 1}"}
        return web.Response(status=202, headers=sent)

    async def _end(self, request: web.Request) -> web.Response:
        content = bytes(self._uploads[int(request.match_info["number"])]) + await request.read()
        digest = request.query["digest"]
        if _digest(content) != digest:
            return web.Response(status=400)
        self.blobs[digest] = content
        return web.Response(status=201, headers={"Location": request.path, "Docker-Content-Digest": digest})

    async def _named(self, request: web.Request) -> web.Response:
        content = self.manifests.get("{name}:{tag}".format(**request.match_info))
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def _name(self, request: web.Request) -> web.Response:
        content = await request.read()
        self.manifests["{name}:{tag}".format(**request.match_info)] = content
        return web.Response(status=201, headers={"Docker-Content-Digest": _digest(content)})


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
