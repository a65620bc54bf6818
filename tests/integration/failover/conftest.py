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
from tests.cluster.proxy import Proxy
from tests.cluster.receipts import receipts_given
from tests.cluster.replicas import Replicas
from tests.cluster.starting import fake_nodes

from parley.kube.client import Client
from parley_devcluster import Cluster

NODES = 20
DEVICES = 12
ONE = "one"
WHOLE = "whole"


@pytest.fixture(scope="module")
def cluster(workplace: Cluster) -> Iterator[Cluster]:
    """The control plane, with nodes."""
    with fake_nodes(workplace, NODES):
        yield workplace


@pytest.fixture
async def controllers(cluster: Cluster, controller_account: Path, proxy: Proxy) -> AsyncIterator[Replicas]:
    """The proxy outlives those that use it."""
    async with Replicas(cluster, controller_account, ("controller",), "restored") as none_yet:
        yield none_yet


@pytest.fixture
async def team(admin: Client, controllers: Replicas) -> AsyncIterator[Namespace]:
    """A namespace with devices and templates. At its end all of them can be had, and none was handed out twice.

    Whoever leads then is followed by a controller that finds nothing held.
    """
    nodes = [f"fake-{number}" for number in range(NODES)]
    async with (
        nothing_handed_out_twice(admin),
        receipts_given(admin, nodes),
        Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine,
    ):
        await mine.create(resource_class("gpu"), template(ONE), template(WHOLE, count=DEVICES))
        names = [f"gpu-{number}" for number in range(DEVICES)]
        await mine.create(*(resource_slice(node, names) for node in nodes))
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
