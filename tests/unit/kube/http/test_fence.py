"""A fenced client sends no write once it must not, not even what was begun a moment before."""

import orjson
import pytest
from aiohttp import web
from tests.unit.kube.http.answers import Serve

from parley.api.resources import PODS
from parley.kube.client import OutcomeUnknown

POD = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"}}


class Server:
    def __init__(self) -> None:
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.method)
        return web.Response(body=orjson.dumps(POD))


@pytest.mark.parametrize("connected", [False, True], ids=["on a new connection", "on an open connection"])
async def test_a_write_is_kept_back_and_a_read_is_not(connected: bool, serve: Serve) -> None:
    server, allowed = Server(), True
    async with (await serve(server.answer)).fenced(lambda: allowed) as client:
        if connected:
            await client.patch(PODS, "a", {}, "default")
        allowed = False
        with pytest.raises(OutcomeUnknown, match=r"^PATCH pods default/a: no answer: "):
            await client.patch(PODS, "a", {}, "default")
        with pytest.raises(OutcomeUnknown, match=r"^DELETE pods default/a: no answer: "):
            await client.delete(PODS, "a", "default")
        assert (await client.get(PODS, "a", "default")).metadata.name == "a"

    assert server.requests == ["PATCH"] * connected + ["GET"]


async def test_the_client_that_was_fenced_off_writes_as_before(serve: Serve) -> None:
    server = Server()
    plain = await serve(server.answer)
    async with plain.fenced(lambda: False):
        await plain.patch(PODS, "a", {}, "default")
    assert server.requests == ["PATCH"]
