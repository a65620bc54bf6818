"""Two controllers that compete for one lease, as in a deployment of two replicas, at a real control plane.

They are programs of their own, with the rights of the controller's service account. The nodes are objects only,
twenty with a dozen devices each.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.load import Bindings, assert_all_is_free
from tests.cluster.manifests import resource_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import PatientClient
from tests.cluster.proxy import Proxy
from tests.cluster.replicas import Replicas
from tests.cluster.starting import DEPLOY, directory, require_machine, settle

from parley.devcluster import Cluster
from parley.devcluster.parley import CONTROLLER, NAMESPACE, install
from parley.kube.client import Client
from parley.kube.http import HttpClient

NODES = 20
DEVICES = 12
ONE = "one"
WHOLE = "whole"


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """A control plane with Parley's kinds, accounts and guards, and nodes without kubelets."""
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as started:
        install(started, DEPLOY)
        settle(started)
        started.add_fake_nodes(NODES)
        yield started


@pytest.fixture(scope="package")
def account(cluster: Cluster) -> Path:
    """The kubeconfig of the controller's service account."""
    return cluster.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    """The API server as the tests' user sees it, who waits while it is down."""
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig)) as client:
        yield PatientClient(client)


@pytest.fixture
async def proxy(account: Path) -> AsyncIterator[Proxy]:
    """A way to the API server that can be cut."""
    async with Proxy.serve(account) as serving:
        yield serving


@pytest.fixture
async def controllers(cluster: Cluster, account: Path, proxy: Proxy) -> AsyncIterator[Replicas]:
    """No controller yet. The proxy outlives those that use it."""
    competing = Replicas(cluster, account, ("controller",), "restored")
    try:
        yield competing
    finally:
        await competing.stop()


@pytest.fixture
async def team(admin: Client, controllers: Replicas) -> AsyncIterator[Namespace]:
    """A namespace with devices and templates. At its end all of them can be had, and none was handed out twice.

    Whoever leads then is followed by a controller that finds nothing held.
    """
    async with nothing_handed_out_twice(admin), Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        await mine.create(resource_class("gpu"), template(ONE), template(WHOLE, count=DEVICES))
        names = [f"gpu-{number}" for number in range(DEVICES)]
        await mine.create(*(resource_slice(f"fake-{number}", names) for number in range(NODES)))
        yield mine
        async with Bindings.watch(admin, mine.name) as bindings:
            await assert_all_is_free(mine, WHOLE, bindings)
        found = await (await controllers.follow()).said("restored")
        assert (found["holdings"], found["unconfirmed"]) == (0, 0)


@pytest.fixture
async def bindings(admin: Client, team: Namespace) -> AsyncIterator[Bindings]:
    """The bindings of the team's pods."""
    async with Bindings.watch(admin, team.name) as watched:
        yield watched
