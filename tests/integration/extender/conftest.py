"""The extender path at a real control plane: a controller, and a second, stock kube-scheduler as it is shipped.

The scheduler calls the controller by way of what stands for a Service: tests can cut the way and count the calls.
Nodes are objects only. Most tests share one controller; those that end controllers bring their own.
"""

import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import starting
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.manifests import Manifest, pod, resource_class, resource_slice
from tests.cluster.namespace import Namespace
from tests.cluster.raw import raw
from tests.cluster.starting import DEPLOY, fake_nodes
from tests.integration.extender.service import Service

from parley.kube.client import Client
from parley_devcluster import Cluster, Component
from parley_devcluster.parley import CONTROLLER, NAMESPACE
from parley_devcluster.second_scheduler import (
    SCHEDULER_NAME,
    SECOND_SCHEDULER,
    free_address,
    grant,
    start_second_scheduler,
)

NODES = ("node-0", "node-1", "node-2")
CPUS = 32
"""What a fake node has."""
MANAGED = "parley.dev/negotiated"
"""The extended resource by which an entry in a cluster's own scheduler is limited."""

OPTIONS = ("--scheduler-name", SCHEDULER_NAME, "--managed-resource", MANAGED, "--lease-duration", "12")


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Where schedulers call."""
    with Service.run() as running:
        yield running


@pytest.fixture(scope="session")
def workplace() -> Iterator[Cluster]:
    """A control plane of its own: its controller runs until all tests of the run have ended."""
    with starting.workplace() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def controller_account(workplace: Cluster) -> Path:
    """The kubeconfig of the controller's service account there."""
    return workplace.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)


@pytest.fixture(scope="session")
def cluster(workplace: Cluster, service: Service) -> Iterator[Cluster]:
    """The control plane with nodes and the second scheduler."""
    grant(workplace, DEPLOY)
    with fake_nodes(workplace, len(NODES), prefix="node-") as names:
        assert names == NODES
        scheduler = start_second_scheduler(workplace, DEPLOY, service.address)
        try:
            yield workplace
        finally:
            scheduler.stop()


@pytest.fixture(scope="session")
def shared(cluster: Cluster, controller_account: Path) -> Iterator[tuple[Component, str]]:
    """The controller that most tests share, and its address."""
    address = free_address()
    program = (sys.executable, "-m", "parley", "controller", "--kubeconfig", str(controller_account))
    component = cluster.add_program(CONTROLLER, [*program, "--extender-address", address, *OPTIONS])
    try:
        yield component, address
    finally:
        component.stop()


@pytest.fixture
def controller(shared: tuple[Component, str], service: Service) -> Component:
    """It runs, leads, and is the one that schedulers reach."""
    component, address = shared
    component.start()
    service.backends = [address]
    service.wait_ready()
    return component


@pytest.fixture
async def team(admin: Client, controller: Component) -> AsyncIterator[Namespace]:
    """A namespace with a class `gpu`. At the end all of it goes, and nothing was handed out twice meanwhile."""
    async with nothing_handed_out_twice(admin), Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        await mine.create(resource_class("gpu"))
        yield mine
        print(f"the controller said last:\n{controller.last_lines()}")


def lead_again(cluster: Cluster) -> None:
    """Start the second scheduler, which a test has stopped, so that it leads at once."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    if any(lease["metadata"]["name"] == SECOND_SCHEDULER for lease in raw(cluster).get(path)["items"]):
        raw(cluster).request("DELETE", f"{path}/{SECOND_SCHEDULER}")
    cluster.component(SECOND_SCHEDULER).start()


Devices = Callable[..., Awaitable[None]]


@pytest.fixture
def devices(team: Namespace) -> Devices:
    """Publishes devices: `await devices(node_0=1)` gives node-0 the device gpu-0."""

    async def publish(driver: str = "device.parley.dev", **counts: int) -> None:
        for node, count in counts.items():
            names = [f"gpu-{index}" for index in range(count)]
            await team.create(resource_slice(node.replace("_", "-"), names, driver))

    return publish


def parley_pod(name: str, *, cpu: str = "10m", **more: Any) -> Manifest:
    """A pod that the second scheduler places."""
    made = pod(name, schedulerName=SCHEDULER_NAME, **more)
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return made
