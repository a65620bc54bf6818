"""An API server in memory, and a folder whose path is short enough for unix sockets."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.kubelet.drivers import PortNode

from parley.kube.client import Client
from parley.kube.memory import MemoryServer


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


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where the machine has such a place: for tests that write thousands of files."""
    place = Path("/dev/shm")
    if not place.is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="pk-", dir=place))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def node(client: Client, folder: Path) -> PortNode:
    return PortNode(client, folder)
