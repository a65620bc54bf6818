"""The disk array of examples/attached as a service on a port of its own, whose clock is the test's."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from examples.attached import fabric

NODES = ("node-1", "node-2")
SECONDS = 100.0


class Service:
    """The array as a process: it can be stopped and started again, and its clock is `now`."""

    def __init__(self, state: Path) -> None:
        self.now = 1000.0
        self._options = fabric.Options(state, NODES, capacity=50, seconds=SECONDS)
        self._runner: web.AppRunner | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        array = fabric.Array(self._options, lambda: self.now)
        self._runner = web.AppRunner(fabric.application(array))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}{path}", json=body) as answer,
        ):
            return await answer.json()

    async def volumes(self) -> dict[str, str]:
        """The node of each volume."""
        return {v["name"]: v["attachment"]["node"] for v in await self.ask("GET", "/volumes")}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    running = Service(tmp_path / "fabric.json")
    await running.start()
    yield running
    await running.stop()
