"""The node plugin on a real API server, which checks and rewrites more than the one in memory."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.patience import patient
from tests.cluster.watching import LIMIT

from parley.api.builtin import ResourceSlice
from parley.api.resources import NODES, PODS, RESOURCE_SLICES, Resource
from parley.kube.client import AlreadyExists, Client, EventType
from parley_devcluster import Cluster
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import Offer
from parley_kubelet.serving.slices import SlicePublisher
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim, offered_status

pytestmark = pytest.mark.cluster

DRIVER = "device.parley.dev"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, dict)
GPU = Offer("gpu-0", {"model": "a100", "index": 0}, {"slices": "2", "memory": "40960Mi"})
FUSE = Offer("fuse", {"model": "fuse", "index": 1}, {"slices": "1"})
DEVICES = {
    "devices": [
        {"name": "gpu-0", "model": "a100", "memory": "40960Mi", "slices": 2},
        {"name": "null", "model": "null", "deviceNodes": ["/dev/null"]},
    ]
}


@pytest.fixture
async def client(control_plane: Cluster) -> AsyncIterator[Client]:
    async with patient(control_plane.kubeconfig) as client:
        yield client


@pytest.fixture
async def node(client: Client) -> AsyncIterator[str]:
    """A node of the test's own; its slices go with it."""
    name = f"n-{uuid.uuid4().hex[:8]}.example.com"
    await client.create(NODES, {"metadata": {"name": name}})
    yield name
    await client.delete(NODES, name)


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name


async def published(client: Client, node: str) -> tuple[ResourceSlice, ...]:
    selector = f"spec.driver={DRIVER},spec.nodeName={node}"
    return (await client.list(RESOURCE_SLICES, field_selector=selector)).items


async def test_slices_are_accepted_kept_as_they_are_and_written_once(client: Client, node: str) -> None:
    publishers = [SlicePublisher(client, driver=DRIVER, node=node, devices=lambda: (GPU, FUSE)) for _ in range(2)]
    assert await publishers[0].publish()
    assert not await publishers[1].publish()
    (slice_,) = await published(client, node)
    gpu, fuse = slice_.spec.devices
    assert (gpu.name, gpu.attributes["model"].string, gpu.attributes["index"].int_) == ("gpu-0", "a100", 0)
    assert {name: capacity.value for name, capacity in gpu.capacity.items()} == {"memory": "40Gi", "slices": "2"}
    (taint,) = fuse.taints
    assert (taint.key, taint.value, taint.effect) == ("parley.dev/negotiated", DRIVER, "NoSchedule")


async def test_as_many_devices_as_a_slice_may_have_and_one_more(client: Client, node: str) -> None:
    devices = tuple(Offer(f"gpu-{number}", {"model": "a100"}) for number in range(65))
    publisher = SlicePublisher(client, driver=DRIVER, node=node, devices=lambda: devices)
    await publisher.publish()
    assert sorted(len(slice_.spec.devices) for slice_ in await published(client, node)) == [1, 64]
    devices = devices[:3]
    await publisher.publish()
    (slice_,) = await published(client, node)
    assert (len(slice_.spec.devices), slice_.spec.pool.generation) == (3, 2)


async def test_a_deleted_slice_is_back(client: Client, node: str) -> None:
    publisher = SlicePublisher(client, driver=DRIVER, node=node, devices=lambda: (GPU,))
    await publisher.publish()
    (first,) = await published(client, node)
    running = asyncio.create_task(publisher.run())
    try:
        await client.delete(RESOURCE_SLICES, first.metadata.name)
        async with asyncio.timeout(LIMIT):
            again = await next_slice(client, node, after=first)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [device.name for device in again.spec.devices] == ["gpu-0"]


async def next_slice(client: Client, node: str, after: ResourceSlice) -> ResourceSlice:
    version = after.metadata.resource_version
    async for event in client.watch(RESOURCE_SLICES, resource_version=version):
        if event.type is EventType.ADDED and event.object and event.object.spec.node_name == node:
            return event.object
    raise AssertionError("the watch ended without a new slice")


async def waiting_pod(client: Client, namespace: str, name: str) -> str:
    """UID of a pod that no scheduler takes; made if it is not there."""
    container = {"name": "main", "image": "none"}
    body = {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    try:
        return (await client.create(PODS, body, namespace)).metadata.uid
    except AlreadyExists:
        return (await client.get(PODS, name, namespace)).metadata.uid


async def test_claims_allocated_either_way_are_prepared(
    client: Client, node: str, namespace: str, tmp_path: Path
) -> None:
    preparation = Preparation(
        DeviceNodeDriver(node, Configuration.model_validate(DEVICES)),
        client,
        boot="this boot",
        state=Folder(tmp_path / "state"),
        cdi=Folder(tmp_path / "cdi"),
    )
    for name, status in (
        ("at-once", allocated_status(node, ["gpu-0"])),
        ("later", offered_status(node, ["null"])),
    ):
        # the controller-manager takes reservations from pods that do not exist
        reserved = {"resource": "pods", "name": "user", "uid": await waiting_pod(client, namespace, "user")}
        claim = await create_claim(client, name, {**status, "reservedFor": [reserved]}, namespace)
        prepared = await preparation.prepare(ClaimName(namespace, name, claim.metadata.uid))
        assert len(prepared.devices) == 1
    assert len(list((tmp_path / "cdi").iterdir())) == 2
