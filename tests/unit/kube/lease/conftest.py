"""An API server in memory, and processes that run until the end of the test."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.kube.lease.candidates import Start
from tests.unit.kube.tasks import beside_the_test

from parley.kube.memory import MemoryServer


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts processes, until the end of the test."""
    async with beside_the_test() as begin:
        yield lambda process: begin(process.elector.run(process.lead))
