"""Programs that work together: the controller and a standalone driver of it, each with the rights of its own
service account. The nodes are objects only.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.cluster.load import Bindings
from tests.cluster.namespace import Namespace
from tests.cluster.proxy import Proxy
from tests.cluster.replicas import Replicas
from tests.cluster.starting import fake_nodes

from parley.kube.client import Client
from parley_devcluster import Cluster

NODES = 3
COMMAND = ("controller", "--driver", "device")


@pytest.fixture(scope="module")
def cluster(workplace: Cluster) -> Iterator[Cluster]:
    """The control plane, with nodes."""
    with fake_nodes(workplace, NODES):
        yield workplace


@pytest.fixture
async def controllers(cluster: Cluster, controller_account: Path, proxy: Proxy) -> AsyncIterator[Replicas]:
    """They run no driver but that for devices. The proxy outlives those that use it."""
    async with Replicas(cluster, controller_account, COMMAND, "restored") as none_yet:
        yield none_yet


@pytest.fixture
async def successors(cluster: Cluster, controller_account: Path) -> AsyncIterator[Replicas]:
    """Controllers that need not wait for the lease of one that was killed."""
    async with Replicas(cluster, controller_account, COMMAND, "restored") as none_yet:
        yield none_yet


@pytest.fixture
async def drivers(cluster: Cluster, driver_account: Path) -> AsyncIterator[Replicas]:
    """The driver for tokens."""
    async with Replicas(cluster, driver_account, ("driver", "run", "tokens"), "driver restored") as none_yet:
        yield none_yet


@pytest.fixture
async def team(
    admin: Client, controllers: Replicas, successors: Replicas, drivers: Replicas
) -> AsyncIterator[Namespace]:
    """A namespace. It goes at the end with all that is in it, for which a controller and a driver still run."""
    async with Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        yield mine


@pytest.fixture
async def bindings(admin: Client, team: Namespace) -> AsyncIterator[Bindings]:
    """The bindings of the team's pods."""
    async with Bindings.watch(admin, team.name) as watched:
        yield watched
