"""A control plane with nodes, Parley's controller as a program, a namespace of good users, and a hostile user's.

The nodes are objects only. The controller serves its metrics, which tell whether it was ever restarted or slow.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.load import Bindings
from tests.cluster.manifests import resource_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.cluster.programs import Program
from tests.cluster.receipts import receipts_given
from tests.cluster.starting import fake_nodes
from tests.integration.corpus.sweeping import sweep
from tests.integration.corpus.tenant import Tenant, make_tenant

from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.machine import free_ports

NODES = tuple(f"fake-{number}" for number in range(6))
DEVICES = 16
TENANTS_PODS = 40


@pytest.fixture(scope="module")
def cluster(workplace: Cluster) -> Iterator[Cluster]:
    """The control plane, with nodes."""
    with fake_nodes(workplace, len(NODES)):
        yield workplace


@dataclass(frozen=True)
class Controller:
    """The program, and where its figures are."""

    program: Program
    port: int


@asynccontextmanager
async def running_controller(cluster: Cluster, account: Path) -> AsyncIterator[Controller]:
    """`parley controller`, ready to decide; it must not end before the block does."""
    (port,) = free_ports(1)
    name = f"hostile-{uuid.uuid4().hex[:6]}"
    options = ("--kubeconfig", str(account), "--lease-name", name, "--metrics-port", str(port))
    program = await Program.start(cluster, name, "controller", *options)
    try:
        await program.said("restored")
        yield Controller(program, port)
        assert program.running, f"the controller ended:\n{program.last_lines()}"
    finally:
        await program.stop()


@pytest.fixture
async def team(cluster: Cluster, admin: Client, controller: Controller) -> AsyncIterator[Namespace]:
    """The good users' namespace, with devices. At its end all of it goes, and nothing was handed out twice."""
    async with (
        nothing_handed_out_twice(admin),
        receipts_given(admin, NODES),
        Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine,
    ):
        # A tenant may have its share; without a limit it would simply take all there is.
        await mine.create(resource_class("gpu", limits=[{"units": 24}]), template("one"))
        await mine.create(resource_class("shared", shareable=True, limits=[{"units": 8}]))
        names = [f"gpu-{number}" for number in range(DEVICES)]
        await mine.create(*(resource_slice(node, names) for node in NODES))
        yield mine


@pytest.fixture
async def controller(cluster: Cluster, controller_account: Path) -> AsyncIterator[Controller]:
    """Parley's controller, running."""
    async with running_controller(cluster, controller_account) as started:
        yield started


@pytest.fixture
async def bindings(admin: Client, team: Namespace) -> AsyncIterator[Bindings]:
    """The bindings of the good users' pods."""
    async with Bindings.watch(admin, team.name) as watched:
        yield watched


@pytest.fixture
async def tenant(cluster: Cluster, team: Namespace) -> AsyncIterator[Tenant]:
    """The hostile user, in a namespace of its own, of which nothing is left at the end."""
    namespace = f"hostile-{uuid.uuid4().hex[:6]}"
    kubeconfig = make_tenant(cluster, namespace, pods=TENANTS_PODS)
    try:
        async with Tenant(kubeconfig, namespace) as sending:
            yield sending
    finally:
        await asyncio.to_thread(sweep, cluster, namespace)  # the nodes' receipts come from this event loop
