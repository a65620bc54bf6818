"""The conformance tests of an API server: each runs on the one in memory and on a real one.

What the real one does is right: where the two differ, the one in memory is mended. Without a machine that can
run a control plane the real half skips; `-m "not cluster"` leaves it out.
"""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.patience import patient
from tests.integration.kube.objects import NAMESPACES, SERVICE_ACCOUNTS
from tests.integration.kube.waiting import until

from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley.kube.memory import MemoryServer


@pytest.fixture(params=["memory", pytest.param("http", marks=pytest.mark.cluster)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of either server."""
    if request.param == "memory":
        yield MemoryServer().client()
        return
    kubeconfig: Any = request.getfixturevalue("control_plane").kubeconfig
    async with patient(kubeconfig) as real:
        yield real


@pytest.fixture
async def namespace(client: Client) -> str:
    """A namespace of the test's own, in which pods can be created."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    if isinstance(client, HttpClient):
        await until(client, SERVICE_ACCOUNTS, name, lambda accounts: "default" in accounts)
    return name
