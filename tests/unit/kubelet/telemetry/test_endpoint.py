"""The small HTTP server: what it answers, and that nobody who can connect keeps a probe out."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from parley_kubelet.telemetry import endpoint as module
from parley_kubelet.telemetry.endpoint import LIMIT, MOST, Reply, endpoint


async def well() -> Reply:
    return Reply("ok")


async def ill() -> Reply:
    return Reply("no answer", HTTPStatus.SERVICE_UNAVAILABLE)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with endpoint({"/well": well, "/ill": ill}, 0, "127.0.0.1") as bound:
        yield bound


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def sent(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/well", (200, "ok")),
        ("/well?verbose", (200, "ok")),
        ("/ill", (503, "no answer")),
        ("/", (404, "there are /well, /ill\n")),
    ],
)
async def test_answers(port: int, path: str, answer: tuple[int, str]) -> None:
    assert await asyncio.to_thread(get, port, path) == answer


async def test_only_get(port: int) -> None:
    assert (await sent(port, b"POST /well HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("data", [b"\x00\xff \r\n\r\n", b"x" * 100_000])
async def test_what_is_no_request_ends_its_connection_only(port: int, data: bytes) -> None:
    try:
        answer = await sent(port, data)
    except ConnectionResetError:
        answer = b""

    assert answer == b"" or answer.startswith(b"HTTP/1.1 404 ")
    assert await asyncio.to_thread(get, port, "/well") == (200, "ok")


async def test_idle_connections_do_not_keep_a_probe_out(port: int) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MOST)]
    try:
        assert await asyncio.to_thread(get, port, "/well") == (200, "ok")
        assert await asyncio.wait_for(idle[0][0].read(), LIMIT / 2) == b""  # the oldest made room
    finally:
        for _, writer in idle:
            writer.close()


async def test_a_flood_of_requests_closes_no_probe_from_elsewhere() -> None:
    asked, known, request = asyncio.Event(), asyncio.Event(), b"GET /slow HTTP/1.1\r\n\r\n"

    async def slow() -> Reply:
        asked.set()
        await known.wait()
        return Reply("ok")

    async with endpoint({"/slow": slow}, 0, "127.0.0.1") as port:
        probe = asyncio.create_task(sent(port, request))
        await asked.wait()
        flood = []
        for _ in range(2 * MOST):
            flood.append(await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)))
            flood[-1][1].write(request)
        closed = await asyncio.wait_for(asyncio.gather(*(one.read() for one, _ in flood[:MOST])), LIMIT / 2)
        assert set(closed) == {b""}
        known.set()
        assert (await probe).endswith(b"ok")
        for _, writer in flood:
            writer.close()


async def test_a_slow_request_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 0.05)

    assert await sent(port, b"GET /well HTTP/1.1\r\n") == b""
