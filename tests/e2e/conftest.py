"""Two real nodes with kubelets and containerd, Parley running beside them as it would at a user's.

One cluster serves the whole run: node-a has one device, node-b two. Every test has its own namespace, and at
its end nothing may be left anywhere: no claim, no file of the container runtime's, no entry of a node's plugin.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.manifests import resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import workspace_plugins
from tests.cluster.nodes import configure, prepared, specifications, wait_for_registration
from tests.cluster.patience import patient
from tests.cluster.starting import DEPLOY, directory, require_machine, settle

from parley.kube.client import Client
from parley_devcluster import Cluster, NodeOptions
from parley_devcluster.parley import CONTROLLER, NODE_PLUGIN, run_parley
from parley_devcluster.second_scheduler import free_address

DEVICES = {"node-a": ["a-0"], "node-b": ["b-0", "b-1"]}


@pytest.fixture(scope="session")
def device_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The nodes' devices, and by node the file that tells its plugin of them."""
    require_machine(real_nodes=True)
    return configure(tmp_path_factory.mktemp("devices"), DEVICES)


@pytest.fixture(scope="session")
def extender() -> str:
    """The address at which the controller answers the second scheduler."""
    return free_address()


@pytest.fixture(scope="session")
def cluster(device_files: Mapping[str, Path], extender: str) -> Iterator[Cluster]:
    """The cluster, with Parley's controller, second scheduler and node plugins running."""
    with directory() as place, Cluster.start(place, nodes=[NodeOptions(name) for name in DEVICES]) as started:
        run_parley(started, deploy=DEPLOY, devices=device_files, extender=extender)
        settle(started)
        for name in DEVICES:
            wait_for_registration(started, name)
        yield started
        programs = [CONTROLLER, *(f"{NODE_PLUGIN}-{name}" for name in DEVICES)]
        for log in (started.component(name).log for name in programs):
            assert "Forbidden" not in log.read_text(), f"an account lacks a right, see {log}"


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    """The API server as the tests' user sees it."""
    async with patient(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def team(cluster: Cluster, admin: Client) -> AsyncIterator[Namespace]:
    """A namespace with a class `gpu` and a template `one` of one device.

    A controller that a busy machine cost its lease has ended; it is started again, as a Deployment does.
    """
    cluster.component(CONTROLLER).launch()
    async with nothing_handed_out_twice(admin), Namespace(admin, f"team-{uuid.uuid4().hex[:6]}") as mine:
        await mine.create(resource_class("gpu"), template("one"))
        yield mine
    for node in cluster.nodes:
        assert prepared(node) == {}
        assert specifications(node) == []


@pytest.fixture
def places(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A folder for each node, with `root` and `state` of a plugin that serves workspaces.

    Ask for it before `team`, whose pods need the plugins until they are gone.
    """
    with workspace_plugins(cluster, tmp_path):
        yield tmp_path
