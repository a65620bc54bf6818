"""Parley's controller at a real control plane: kube-scheduler and kube-controller-manager as everybody has them.

The nodes are objects only, their devices ResourceSlices by hand, so that a bound pod is as far as it goes. The
controller runs in the test's own event loop with the rights of its service account, so that it can be ended
and begun again at will; every test has its own namespace and sees the end of all that it made.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.manifests import resource_class, resource_slice
from tests.cluster.namespace import Namespace
from tests.cluster.starting import fake_nodes

from parley.api.builtin import Pod
from parley.api.names import DEVICE_CLASS
from parley.drivers.device import DeviceDriver
from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley.scheduler.controller import Controller
from parley.scheduler.settings import ControllerSettings
from parley.sdk import Driver
from parley_devcluster import Cluster

NODES = ("node-0", "node-1", "node-2")


@pytest.fixture(scope="module")
def cluster(workplace: Cluster) -> Iterator[Cluster]:
    """The control plane, with nodes."""
    with fake_nodes(workplace, len(NODES), prefix="node-") as names:
        assert names == NODES
        yield workplace


class Parley:
    """The controller, which can be ended without a chance to tidy up and begun again with nothing in memory.
    `drivers` and `settings` are those of its next start."""

    def __init__(self, account: Path) -> None:
        self.drivers: Sequence[Callable[[], Driver[Any, Any]]] = (DeviceDriver,)
        self.settings = ControllerSettings()
        self._account = account
        self._client: HttpClient | None = None
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when it is ready to decide."""
        self._client = HttpClient.from_kubeconfig(str(self._account))
        controller = Controller(self._client, [driver() for driver in self.drivers], self.settings)
        self._running = asyncio.create_task(controller.run())
        ready = asyncio.create_task(controller.ready.wait())
        await asyncio.wait([self._running, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            await self.kill()

    async def kill(self) -> None:
        """End it wherever it is. Raises what made it end before, if something did."""
        running, client = self._running, self._client
        self._running = self._client = None
        if running is None or client is None:
            return
        running.cancel()
        (ending,) = await asyncio.gather(running, return_exceptions=True)
        await client.close()
        if not isinstance(ending, asyncio.CancelledError):
            raise AssertionError("the controller ended by itself") from ending


@pytest.fixture
async def parley(cluster: Cluster, controller_account: Path) -> AsyncIterator[Parley]:
    """Parley, running."""
    controller = Parley(controller_account)
    await controller.start()
    try:
        yield controller
    finally:
        await controller.kill()


@pytest.fixture
async def team(admin: Client, parley: Parley) -> AsyncIterator[Namespace]:
    """A namespace with a class `gpu`. At the end all of it goes, and nothing was handed out twice meanwhile."""
    async with nothing_handed_out_twice(admin), Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        await mine.create(resource_class("gpu"))
        yield mine


Devices = Callable[..., Awaitable[None]]


@pytest.fixture
def devices(team: Namespace) -> Devices:
    """Publishes devices: `await devices(**{"node-0": 1})` gives node-0 the device gpu-0."""

    async def publish(driver: str = "device.parley.dev", slices: int = 1, **counts: int) -> None:
        for node, count in counts.items():
            names = [f"gpu-{index}" for index in range(count)]
            await team.create(resource_slice(node.replace("_", "-"), names, driver, slices))

    return publish


async def was_refused(team: Namespace, name: str) -> None:
    """The scheduler has said of the pod with its claims all it will say."""

    def refused(pod: Pod) -> bool:
        return any(c.type == "PodScheduled" and DEVICE_CLASS in c.message for c in pod.status.conditions)

    await team.pod(name, refused, "was refused by the scheduler")
