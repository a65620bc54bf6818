"""What the HTTP client makes of a watch's stream, however it comes and ends."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web
from tests.unit.kube.http.answers import Handler, Serve

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLASSES, PODS
from parley.kube.client import EventType, Expired, OutcomeUnknown, ServerError, WatchEvent
from parley.kube.errors import Silent
from parley.kube.http import HttpClient


def claim_event(kind: str, version: int, **annotations: str) -> bytes:
    meta = {"name": "a", "namespace": "default", "resourceVersion": str(version), "annotations": annotations}
    return orjson.dumps({"type": kind, "object": {"metadata": meta}}) + b"\n"


def streaming(*chunks: bytes, code: int = 200, then: float = 0, cut: bool = False) -> Handler:
    """Sends the chunks one by one, waits, and ends the stream: properly, or by cutting the connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=code)
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.sleep(then)
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return handler


async def events(client: HttpClient, into: list[WatchEvent[BuiltinClaim]]) -> None:
    async for event in client.watch(BUILTIN_CLAIMS, "default", resource_version="1"):
        into.append(event)


async def watched(serve: Serve, *chunks: bytes) -> list[WatchEvent[BuiltinClaim]]:
    found: list[WatchEvent[BuiltinClaim]] = []
    await events(await serve(streaming(*chunks)), found)
    return found


async def test_a_watch_asks_for_bookmarks_from_the_version_on(serve: Serve) -> None:
    asked: dict[str, str] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.update(request.query)
        return web.Response()

    client = await serve(handler, watch_seconds=240)
    assert [event async for event in client.watch(PODS, resource_version="7", label_selector="a=b")] == []
    assert asked == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "240",
        "labelSelector": "a=b",
    }


async def test_changes_arrive_however_the_stream_is_cut_into_chunks(serve: Serve) -> None:
    text = claim_event("ADDED", 2) + claim_event("MODIFIED", 3) + claim_event("DELETED", 4)
    for size in (1, 7, len(text)):
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        found = await watched(serve, *chunks)
        assert [(event.type, event.resource_version) for event in found] == [
            (EventType.ADDED, "2"),
            (EventType.MODIFIED, "3"),
            (EventType.DELETED, "4"),
        ]
        assert all(event.object is not None and event.object.metadata.name == "a" for event in found)


async def test_a_bookmark_has_a_version_and_no_object(serve: Serve) -> None:
    # Only the version is certain to be in it: a ResourceClass without driverName is no ResourceClass.
    line = b'{"type":"BOOKMARK","object":{"kind":"ResourceClass","metadata":{"resourceVersion":"90"}}}\n'
    client = await serve(streaming(line))
    found = [event async for event in client.watch(CLASSES, resource_version="1")]
    assert found == [WatchEvent(EventType.BOOKMARK, None, "90")]


async def test_an_event_of_more_than_two_mebibytes_arrives_whole(serve: Serve) -> None:
    (found,) = await watched(serve, claim_event("ADDED", 2, large="x" * (3 << 20)))
    assert found.object is not None
    assert len(found.object.metadata.annotations["large"]) == 3 << 20


async def test_line_breaks_of_other_alphabets_inside_a_value_do_not_end_the_line(serve: Serve) -> None:
    value = "a\u0085b\u2028c\u2029d\x0be"
    (found,) = await watched(serve, claim_event("ADDED", 2, text=value))
    assert found.object is not None
    assert found.object.metadata.annotations["text"] == value


async def test_a_stream_that_ends_without_an_event_just_ends(serve: Serve) -> None:
    assert await watched(serve) == []
    assert await watched(serve, b"\n", b" \n") == []


@pytest.mark.parametrize("cut", [False, True])
async def test_a_stream_that_ends_in_the_middle_of_a_line_gives_the_whole_ones_first(
    cut: bool, serve: Serve
) -> None:
    found: list[WatchEvent[BuiltinClaim]] = []
    chunks = (claim_event("ADDED", 2), claim_event("MODIFIED", 3)[:-10])
    client = await serve(streaming(*chunks, cut=cut))
    with pytest.raises(OutcomeUnknown, match=r"^WATCH resourceclaims default: "):
        await events(client, found)
    assert [event.resource_version for event in found] == ["2"]


@pytest.mark.parametrize("code", [200, 410])
async def test_a_version_that_is_too_old_is_told_as_an_event_or_as_the_answer(code: int, serve: Serve) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (77)"}
    content = orjson.dumps({"type": "ERROR", "object": gone} if code == 200 else gone) + b"\n"
    client = await serve(streaming(content, code=code))
    with pytest.raises(Expired, match=r"^410 Expired: too old resource version: 1 \(77\)$"):
        await events(client, [])


async def test_another_error_in_the_stream_is_raised_by_its_code(serve: Serve) -> None:
    error = {"kind": "Status", "code": 500, "message": "unable to decode an event from the watch stream"}
    line = orjson.dumps({"type": "ERROR", "object": error}) + b"\n"
    client = await serve(streaming(line))
    with pytest.raises(ServerError, match="unable to decode an event"):
        await events(client, [])


@pytest.mark.parametrize("line", [b"no json\n", b'{"type":"SURPRISE","object":{}}\n', b'{"object":{}}\n'])
async def test_a_line_that_is_no_event_breaks_the_watch(line: bytes, serve: Serve) -> None:
    client = await serve(streaming(line))
    with pytest.raises(OutcomeUnknown, match="WATCH resourceclaims default: the answer cannot be read"):
        await events(client, [])


async def test_a_watch_that_fell_silent_is_given_up(serve: Serve) -> None:
    found: list[WatchEvent[BuiltinClaim]] = []
    client = await serve(streaming(claim_event("ADDED", 2), then=5), silent_seconds=0.2)
    with pytest.raises(Silent, match=r"^WATCH resourceclaims default: no answer: nothing came within 0\.2 s$"):
        await events(client, found)
    assert len(found) == 1


async def test_a_watch_that_is_not_opened_in_time_says_how_long_that_was(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    client = await serve(handler, timeout=0.2, silent_seconds=150)
    with pytest.raises(
        OutcomeUnknown, match=r"^WATCH resourceclaims default: no answer: nothing came within 0\.2 s$"
    ):
        await events(client, [])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_server_that_is_gone_without_a_word_is_noticed_on_a_quiet_watch(
    connect: Callable[..., Awaitable[HttpClient]], host_of: Callable[[Handler], Awaitable[str]]
) -> None:
    host = await host_of(streaming(claim_event("ADDED", 2), then=5))
    stream = cast(Any, (await connect(host)).watch(BUILTIN_CLAIMS, resource_version="1"))
    async with aclosing(stream):
        await anext(stream)
        probed = {address for address, timer in connections() if timer == "02"}
    assert int(host.rpartition(":")[2]) in probed


def connections() -> Iterator[tuple[int, str]]:
    """The remote port of each, and which timer runs: 02 is that of keepalive (proc_net_tcp.txt)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, _, _, timer, *_ = line.split()
        yield int(remote.rpartition(":")[2], 16), timer.partition(":")[0]


async def test_leaving_a_watch_closes_its_connection(serve: Serve) -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(claim_event("ADDED", 2))
        try:
            while True:
                await response.write(b"\n")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    client = await serve(handler)
    stream = cast(Any, client.watch(BUILTIN_CLAIMS, resource_version="1"))
    async with aclosing(stream):
        assert (await anext(stream)).resource_version == "2"
    await asyncio.wait_for(ended.wait(), 60)
