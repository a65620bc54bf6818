"""`parley web`, and the page beside a controller: where it is served, and what is said where it can't be."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import typer
from typer.testing import CliRunner

from parley.api.resources import CLASSES, NODES
from parley.cli.leading import Options, serve
from parley.cli.main import app, plugin
from parley.cli.web import ServingAddress, place, serving
from parley.control.telemetry.metrics import Metrics
from parley.drivers import built_in
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8080", "127.0.0.1", 8080),
        (":8080", "127.0.0.1", 8080),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:8080", "::1", 8080),
        ("localhost:0", "localhost", 0),
    ],
)
def test_where_to_serve(text: str, host: str, port: int) -> None:
    assert place(text, ["parley.example.com"]) == ServingAddress(host, port, ("parley.example.com",))


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "1.2.3.4:http", "1:65536", "1:-1", "1:٣"])
def test_nowhere_to_serve(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write PORT or HOST:PORT, such as 8080"):
        place(text)


def test_without_a_kubeconfig(tmp_path: Path) -> None:
    result = CliRunner().invoke(plugin, ["web", "--address", "0", "--kubeconfig", str(tmp_path / "none")])

    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith(f"error: kubeconfig {tmp_path / 'none'}, current context: no such file")


def test_where_somebody_else_serves(unreachable: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["web", "--address", port, "--kubeconfig", str(unreachable)])

    assert result.exit_code == 7
    assert result.stderr == (
        f"error: cannot serve at 127.0.0.1:{port}: address already in use: give another port or address\n"
    )


async def found(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}?format=json") as answer:
        assert answer.status == 200, await answer.text()
        data: dict[str, Any] = orjson.loads(await answer.read())
        return data


async def test_a_controller_serves_it_whether_it_leads_or_not() -> None:
    server = MemoryServer()
    await server.client().create(CLASSES, {"metadata": {"name": "gpu"}, "driverName": "device.parley.dev"})
    await server.client().create(NODES, {"metadata": {"name": "a"}})

    def leader(client: Client, metrics: Metrics) -> Controller:
        return Controller(client, built_in(), metrics=metrics)

    urls: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        async with serving(server.client(), ServingAddress("127.0.0.1", 0)) as url:
            urls.put_nowait(url)
            yield

    def process(name: str) -> asyncio.Task[None]:
        client = server.client()
        return asyncio.create_task(serve(client, Options(name), lambda _: client, leader, [beside]))

    processes = [process("first"), process("second")]
    try:
        for _ in processes:
            assert [row["name"] for row in (await found(await urls.get()))["classes"]] == ["gpu"]
    finally:
        for running in processes:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    try:
        async with serving(MemoryServer().client(), ServingAddress("::1", 0)) as url:
            assert url.startswith("http://[::1]:")
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """A kubeconfig of an API server that does not answer."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_bytes(orjson.dumps(config))
    return tmp_path / "config"


async def logged(unreachable: Path, *options: str) -> AsyncIterator[dict[str, str]]:
    """What a controller with these options logs, until it has started; it is stopped at the end."""
    command = ("-m", "parley", "controller", "--kubeconfig", str(unreachable), "--log-format", "json", *options)
    environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            entry = orjson.loads(line)
            yield entry
            if entry["event"] == "started":
                return
    finally:
        process.terminate()
        await process.communicate()


async def test_a_controller_serves_it_only_if_told_to(unreachable: Path) -> None:
    assert [entry["event"] async for entry in logged(unreachable)] == ["started"]

    told = logged(unreachable, "--web-address", "0")
    first = await anext(told)
    async with aiohttp.ClientSession() as session, session.get(first["url"]) as answer:
        assert answer.status == 503
        assert "check whether the API server runs and can be reached" in await answer.text()
    assert (first["event"], first["url"][:17]) == ("the page is served", "http://127.0.0.1:")
    assert [entry["event"] async for entry in told] == ["started"]


def test_a_controller_that_is_told_nonsense() -> None:
    refused = CliRunner().invoke(app, ["controller", "--web-address", "here"])

    assert refused.exit_code == 2
    assert "such as 8080" in refused.stderr
