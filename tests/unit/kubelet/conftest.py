"""An API server in memory, and a folder whose path is short enough for unix sockets."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.kube.client import Client
from parley.kube.memory import MemoryServer


@pytest.fixture(scope="session", autouse=True)
def no_event_loop_of_nobody() -> None:
    """looptime asks for the current event loop around plain tests too; the first one would make a loop that nobody
    closes."""
    asyncio.set_event_loop(None)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def client(server: MemoryServer) -> Client:
    return server.client()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
    yield path
    shutil.rmtree(path)
