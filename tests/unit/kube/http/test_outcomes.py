"""What is known of a request that failed on its way: a write may have happened, and is never sent twice."""

import asyncio

import orjson
import pytest
from aiohttp import web
from tests.unit.kube.http.answers import POD, Serve, answering, status_object

from parley.api.resources import NODES, PODS
from parley.kube.client import (
    OutcomeUnknown,
    ServerError,
    TooLarge,
)
from parley.kube.errors import Unreachable


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (502, "bad gateway"),
        (504, "Timeout: request did not complete within the allotted timeout"),
        (500, "etcdserver: request timed out"),
        (500, "rpc error: code = Unavailable desc = error reading from server: EOF"),
        (500, "context deadline exceeded"),
        (500, "context canceled"),
    ],
)
async def test_a_write_that_got_lost_behind_the_server_has_an_unknown_outcome(
    code: int, message: str, serve: Serve
) -> None:
    client = await serve(answering(status_object(code, "Lost", message), code))
    with pytest.raises(OutcomeUnknown, match=f"^PATCH pods default/a/status: {code} Lost: {message}$"):
        await client.patch(PODS, "a", {}, "default", subresource="status")
    with pytest.raises(ServerError):
        await client.get(PODS, "a", "default")


async def test_a_webhook_that_did_not_answer_has_kept_the_write_from_happening(serve: Serve) -> None:
    message = 'Internal error occurred: failed calling webhook "x": context deadline exceeded'
    client = await serve(answering(status_object(500, "InternalError", message), 500))
    with pytest.raises(ServerError):
        await client.patch(PODS, "a", {}, "default")


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (503, b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"),
        (503, b'{"message": "Service Unavailable"}'),
        (500, b"This request caused apiserver to panic. Look in the logs for details."),
        (520, b"<html>Unknown error</html>"),
    ],
)
async def test_a_write_over_which_something_else_than_the_api_server_failed_has_an_unknown_outcome(
    code: int, answer: bytes, serve: Serve
) -> None:
    client = await serve(answering(answer, code))
    with pytest.raises(OutcomeUnknown, match=f"^PATCH pods default/a: {code} "):
        await client.patch(PODS, "a", {}, "default")
    with pytest.raises(ServerError):
        await client.get(PODS, "a", "default")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (500, "etcdserver: request is too large"),
        (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (9 vs. 8)",
        ),
        (413, "Request entity too large: limit is 3145728"),
    ],
)
async def test_a_write_of_what_is_too_large_to_be_stored_is_refused(code: int, message: str, serve: Serve) -> None:
    """It did not happen, and is not to be repeated until it does."""
    client = await serve(answering(status_object(code, "Refused", message), code))
    with pytest.raises(TooLarge) as caught:
        await client.patch(PODS, "a", {}, "default")
    assert caught.value.message == message


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 2"])
async def test_a_connection_that_breaks_leaves_the_outcome_unknown_and_nothing_is_sent_twice(
    answer: bytes, serve_raw: Serve
) -> None:
    seen: list[bytes] = []
    client = await serve_raw(answer, seen)
    with pytest.raises(OutcomeUnknown, match=r"^PATCH pods default/a: no answer: "):
        await client.patch(PODS, "a", {}, "default")
    with pytest.raises(OutcomeUnknown, match=r"^DELETE pods default/a: no answer: "):
        await client.delete(PODS, "a", "default")
    assert seen == [
        b"PATCH /api/v1/namespaces/default/pods/a HTTP/1.1",
        b"DELETE /api/v1/namespaces/default/pods/a HTTP/1.1",
    ]


async def test_a_deletion_is_not_repeated_on_a_connection_that_was_used_before(serve: Serve) -> None:
    requests: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        requests.append(request.method)
        if request.method == "DELETE":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=orjson.dumps(POD))

    client = await serve(handler)
    await client.get(PODS, "a", "default")
    with pytest.raises(OutcomeUnknown, match=r"^DELETE pods default/a: no answer: "):
        await client.delete(PODS, "a", "default")
    assert requests == ["GET", "DELETE"]


async def test_a_server_that_is_not_there_is_no_answer(unused_tcp_port: int, connect: Serve) -> None:
    client = await connect(f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(OutcomeUnknown, match=r"^GET nodes n1: no answer: connection refused$"):
        await client.get(NODES, "n1")


async def test_a_silent_server_is_given_up_at_the_time_limit(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    loop = asyncio.get_running_loop()
    client = await serve(handler, timeout=0.2)
    started = loop.time()
    with pytest.raises(OutcomeUnknown, match=r"^PATCH pods default/a: no answer: nothing came within 0\.2 s$"):
        await client.patch(PODS, "a", {}, "default")
    assert loop.time() - started < 60


async def test_waiting_for_a_free_connection_counts_for_the_time_limit(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    client = await serve(handler, timeout=0.2, connections=1)
    outcomes = await asyncio.gather(
        client.get(PODS, "a", "default"), client.get(PODS, "b", "default"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Unreachable, Unreachable]
