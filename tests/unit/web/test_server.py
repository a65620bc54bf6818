"""The server: what is answered to whom, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import orjson
import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import one_runs_and_one_waits

from parley.api.resources import CLAIMS, CLASSES, NODES
from parley.cli import logs
from parley.cli.endpoints import served
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Client
from parley.kube.memory import MemoryServer
from parley.simulate.virtual_time import run
from parley.web.server import application, own_name
from parley.web.snapshots import Snapshots, Thread

TAINT = {"key": "maintenance", "effect": "NoSchedule"}


async def _cluster() -> MemoryServer:
    logs.silence()
    world = World()
    world.start_kubernetes()
    await one_runs_and_one_waits(world)
    await world.stop()
    return world.server


@pytest.fixture(scope="module")
def cluster() -> MemoryServer:
    """What is left of a simulated cluster: its objects."""
    return run(_cluster())


class Connected(Client):
    """Has connections, which belong to the event loop in which it was made."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._loop = asyncio.get_running_loop()

    async def request(self, call: Call) -> bytes:
        assert asyncio.get_running_loop() is self._loop
        return await super().request(call)


@asynccontextmanager
async def served_at(
    cluster: MemoryServer, names: tuple[str, ...] = (), most_streams: int = 4
) -> AsyncIterator[str]:
    """Where the page is, made in a thread as everywhere."""
    aside = Thread()
    snapshots = Snapshots(Connected(cluster.client()), "default", aside=aside)
    async with served(application(snapshots, names, most_streams), 0, "127.0.0.1") as port:
        yield f"http://127.0.0.1:{port}"
    await snapshots.close()
    aside.close()


@asynccontextmanager
async def serving(
    cluster: MemoryServer, names: tuple[str, ...] = (), most_streams: int = 4
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the page."""
    async with (
        served_at(cluster, names, most_streams) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(60)) as session,
    ):
        yield session


async def test_a_page_and_its_headers(cluster: MemoryServer) -> None:
    async with serving(cluster) as session, session.get("/pods/default/wants") as answer:
        text = await answer.text()

    assert (answer.status, answer.content_type, answer.charset) == (200, "text/html", "utf-8")
    assert "NothingViable" in text
    policy = answer.headers["Content-Security-Policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert {source for rule in policy[1:] for source in rule.split()[1:]} == {"'self'", "'none'"}
    assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} < set(policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Set-Cookie" not in answer.headers
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "aiohttp" not in answer.headers["Server"]


async def test_parameters_in_an_object_are_read_where_the_connections_are() -> None:
    """A waiting claim that names an object must not take the page away from everybody."""
    server = MemoryServer()
    client = server.client()
    await client.create(CLASSES, {"metadata": {"name": "gpu"}, "driverName": DeviceDriver.name})
    spec = {"resourceClassName": "gpu", "parametersRef": {"kind": "ConfigMap", "name": "size"}}
    for name in ("first", "second"):
        await client.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")

    async with serving(server) as session, session.get("/classes/gpu?format=json") as answer:
        assert [row["name"] for row in orjson.loads(await answer.read())["classes"]] == ["gpu"]


@pytest.mark.parametrize("path", ["/", "/static/live.js", "/nodes/a", "/nodes/none", "/nodes/a?format=json"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_nothing_can_be_written(cluster: MemoryServer, method: str, path: str) -> None:
    async with serving(cluster) as session, session.request(method, path) as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] in ("GET,HEAD", "HEAD,GET")
        assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize(
    "path", ["/", "/pods/default/runs", "/static/style.css", "/?format=json", "/?format=stream"]
)
async def test_head_is_get_without_content(cluster: MemoryServer, path: str) -> None:
    async with serving(cluster) as session, session.head(path) as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_what_a_browser_has_is_not_sent_again(cluster: MemoryServer) -> None:
    async with serving(cluster) as session:
        for path in ("/static/live.js", "/static/style.css", "/static/icon.svg", "/nodes/b"):
            async with session.get(path) as first:
                assert first.headers["Cache-Control"] == "private, no-cache"
            async with session.get(path, headers={"If-None-Match": first.headers["ETag"]}) as second:
                assert (second.status, await second.read()) == (304, b"")
            async with session.get(path, headers={"If-None-Match": '"other"'}) as third:
                assert third.status == 200


async def test_files_are_those_beside_the_pages_and_no_others(cluster: MemoryServer) -> None:
    async with serving(cluster) as session:
        for name in ("none.js", "..%2Fserver.py", "%2e%2e%2fserver.py", ".", "server.py"):
            async with session.get(f"/static/{name}") as answer:
                assert answer.status == 404


async def test_data_for_programs(cluster: MemoryServer) -> None:
    async with serving(cluster) as session:
        async with session.get("/pods/default/runs?format=json") as answer:
            found = await answer.json()
            assert answer.headers["Cache-Control"] == "no-store"
        async with session.get("/pods/default/none?format=json") as missing:
            assert missing.status == 404
            assert "does not exist" in (await missing.json())["error"]
        async with session.get("/?format=yaml") as strange:
            assert (strange.status, await strange.text()) == (400, "format is html, json or stream")

    assert [pod["node"] for pod in found["pods"]] == ["a"]


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("[::1]:8080", True),
        ("10.0.0.7", True),
        ("parley.example.com", True),
        ("Parley.Example.com:443", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_a_name_that_somebody_made_point_here_is_refused(host: str, known: bool) -> None:
    assert own_name(host, {"parley.example.com"}) is known


async def test_who_uses_another_name_is_told_how_to_allow_it(cluster: MemoryServer) -> None:
    async with serving(cluster, ("parley.example.com",)) as session:
        async with session.get("/", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
            assert await answer.text() == (
                "this server is not known as 'evil.example': name it with --web-host (docs/web.md)"
            )
        async with session.get("/", headers={"Host": "parley.example.com"}) as answer:
            assert answer.status == 200


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield orjson.loads(line.removeprefix(b"data: "))


async def test_a_stream_has_the_page_and_then_its_changes(cluster: MemoryServer) -> None:
    async with serving(cluster) as session:
        async with session.get("/nodes/b?format=stream") as answer:
            assert answer.content_type == "text/event-stream"
            told = events(answer)
            first = await anext(told)
            await cluster.client().patch(NODES, "b", {"spec": {"taints": [TAINT]}})
            second = await anext(told)
        async with session.get(f"/nodes/b?format=stream&version={first['version']}") as answer:
            again = await anext(events(answer))
        await cluster.client().patch(NODES, "b", {"spec": {"taints": None}})

    assert first["title"] == "Node b - Parley"
    assert "maintenance" not in first["main"]
    assert "Taints: maintenance:NoSchedule" in second["main"]
    assert again == second


async def test_only_so_many_streams(cluster: MemoryServer) -> None:
    async with serving(cluster, most_streams=1) as session, session.get("/?format=stream") as first:
        await anext(events(first))
        async with session.get("/?format=stream") as second:
            assert second.status == 503
            assert second.headers["Retry-After"] == "10"
        async with session.get("/") as page:
            assert page.status == 200


async def test_a_server_ends_at_once_whoever_reads(cluster: MemoryServer) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        async with served_at(cluster) as url:
            for number in (1, 2, 3):
                answer = await stack.enter_async_context(session.get(f"{url}/?format=stream&page={number}"))
                await anext(events(answer))
            started = loop.time()

        assert loop.time() - started < 5


async def test_who_goes_is_not_told_any_more(cluster: MemoryServer, caplog: pytest.LogCaptureFixture) -> None:
    snapshots = Snapshots(cluster.client(), "default")
    async with served(application(snapshots, most_streams=1, alive=0.02), 0, "127.0.0.1") as port:
        url = f"http://127.0.0.1:{port}/?format=stream"
        for _ in range(3):
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 200
                await anext(events(answer))
            await asyncio.sleep(0.2)
    await snapshots.close()

    assert caplog.records == []
