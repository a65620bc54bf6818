"""A namespace with objects that no decoder takes, and the programs of Parley that must not mind.

The nodes are objects only.
"""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.cluster.manifests import resource_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.receipts import receipts_given
from tests.cluster.replicas import Replicas
from tests.cluster.starting import fake_nodes

from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN

NODES = ("node-0", "node-1")
DEVICES = 3
TOKENS = "tokens.parley.dev"


@pytest.fixture(scope="module")
def cluster(workplace: Cluster) -> Iterator[Cluster]:
    """The control plane, with nodes."""
    with fake_nodes(workplace, len(NODES), prefix="node-") as names:
        assert names == NODES
        yield workplace


@pytest.fixture
async def controllers(cluster: Cluster, controller_account: Path) -> AsyncIterator[Replicas]:
    """With the driver for devices; none runs yet. None may end: it has a lease as users have it."""
    command = ("controller", "--driver", "device")
    async with Replicas(cluster, controller_account, command, "restored", lease_seconds=None) as none_yet:
        yield none_yet


@pytest.fixture
async def drivers(cluster: Cluster, driver_account: Path) -> AsyncIterator[Replicas]:
    """The driver for tokens, outside of the controller; none runs yet."""
    command = ("driver", "run", "tokens")
    async with Replicas(cluster, driver_account, command, "driver restored", lease_seconds=None) as none_yet:
        yield none_yet


@pytest.fixture
async def team(admin: Client, controllers: Replicas, drivers: Replicas) -> AsyncIterator[Namespace]:
    """The namespace of those who do their work."""
    async with (
        receipts_given(admin, NODES[1:]),
        Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine,
    ):
        await mine.create(resource_class("gpu"), template("one"), template("all", count=DEVICES))
        await mine.create(resource_class("licences", TOKENS, nodePart="None", parameters={"pool": 100}))
        await mine.create(template("token", "licences"))
        names = [f"gpu-{number}" for number in range(DEVICES)]
        await mine.create(*(resource_slice(node, names) for node in NODES))
        yield mine


@pytest.fixture
async def mallory(cluster: Cluster, admin: Client, team: Namespace) -> AsyncIterator[Namespace]:
    """The other namespace. Its objects are made with an administrator's rights: admission policies keep those out
    that look like Parley's own (`api/test_tenants`, `corpus`), and here they have to get through."""
    async with (
        Namespace(admin, f"mallory-{uuid.uuid4().hex[:6]}", grace=0) as place,
        patient(cluster.kubeconfig) as client,
    ):
        yield Namespace(client, place.name, grace=0)


@pytest.fixture
async def plugin(cluster: Cluster, tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The node plugin's program of the first node, with the account of the DaemonSet and without a kubelet."""
    (tmp_path / "devices.yaml").write_text("devices: []")
    arguments = {
        "kubeconfig": cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=NODES[0]),
        "node-name": NODES[0],
        "config": tmp_path / "devices.yaml",
        "plugins-dir": tmp_path / "p",
        "plugins-registry-dir": tmp_path / "r",
        "cdi-dir": tmp_path / "c",
        "state-dir": tmp_path / "s",
    }
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "parley_kubelet"),
            *(f"--{option}={value}" for option, value in arguments.items()),
            stdout=log,
            stderr=log,
            env={**os.environ},
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        print(f"the plugin said:\n{(tmp_path / 'log').read_text()}")
