"""A control plane with Parley's kinds, accounts and guards, for programs that work together in it: the controller
and a driver outside of it, each with the rights of its own service account. The nodes are objects only.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.load import Bindings
from tests.cluster.namespace import Namespace
from tests.cluster.patience import PatientClient
from tests.cluster.proxy import Proxy
from tests.cluster.replicas import Replicas
from tests.cluster.starting import DEPLOY, directory, require_machine, settle

from parley.devcluster import Cluster
from parley.devcluster.parley import CONTROLLER, NAMESPACE, install
from parley.kube.client import Client
from parley.kube.http import HttpClient

NODES = 3
DRIVER = "parley-driver"


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """The control plane."""
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as started:
        install(started, DEPLOY)
        settle(started)
        started.add_fake_nodes(NODES)
        yield started


@pytest.fixture(scope="package")
def controller_account(cluster: Cluster) -> Path:
    """The kubeconfig of the controller's service account."""
    return cluster.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)


@pytest.fixture(scope="package")
def driver_account(cluster: Cluster) -> Path:
    """The kubeconfig of the service account for drivers outside of the controller."""
    return cluster.kubeconfig_for_service_account(NAMESPACE, DRIVER)


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    """The API server as the tests' user sees it."""
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig)) as client:
        yield PatientClient(client)


@pytest.fixture
async def proxy(controller_account: Path) -> AsyncIterator[Proxy]:
    """A way to the API server that can be cut."""
    async with Proxy.serve(controller_account) as serving:
        yield serving


@asynccontextmanager
async def ending(replicas: Replicas) -> AsyncGenerator[Replicas, None]:
    """All of them end with the block."""
    try:
        yield replicas
    finally:
        await replicas.stop()


@pytest.fixture
async def controllers(cluster: Cluster, controller_account: Path, proxy: Proxy) -> AsyncIterator[Replicas]:
    """No controller yet; it will run no driver but that for devices. The proxy outlives those that use it."""
    command = ("controller", "--driver", "device")
    async with ending(Replicas(cluster, controller_account, command, "restored")) as none_yet:
        yield none_yet


@pytest.fixture
async def successors(cluster: Cluster, controller_account: Path) -> AsyncIterator[Replicas]:
    """Controllers that need not wait for the lease of one that was killed."""
    command = ("controller", "--driver", "device")
    async with ending(Replicas(cluster, controller_account, command, "restored")) as none_yet:
        yield none_yet


@pytest.fixture
async def drivers(cluster: Cluster, driver_account: Path) -> AsyncIterator[Replicas]:
    """No driver yet."""
    async with ending(
        Replicas(cluster, driver_account, ("driver", "run", "tokens"), "driver restored")
    ) as none_yet:
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
