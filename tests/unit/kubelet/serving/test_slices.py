"""What a node publishes about its devices, and that it stays published. Time is virtual where it passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from parley.api.builtin import ResourceSlice
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import NODES, RESOURCE_SLICES
from parley.kube.client import Body, Call, Client, Forbidden, NotFound
from parley.kube.memory import MemoryServer
from parley_kubelet.hooks import Offer
from parley_kubelet.serving.slices import DevicesUnknown, SlicePublisher, slice_specs

DRIVER = "device.parley.dev"
GPU = Offer("gpu-0", {"model": "a100", "index": 0, "nvlink": True}, {"slices": "2", "memory": "40Gi"})
FUSE = Offer("fuse", {"model": "fuse", "index": 1}, {"slices": "1"})


class Node:
    """A node whose devices come and go, and its publisher."""

    def __init__(self, client: Client, *devices: Offer) -> None:
        self.client = client
        self.devices = devices
        self.publisher = self.another_publisher()

    def another_publisher(self) -> SlicePublisher:
        return SlicePublisher(self.client, driver=DRIVER, node="n1", devices=lambda: self.devices)

    async def published(self) -> tuple[ResourceSlice, ...]:
        return (await self.client.list(RESOURCE_SLICES)).items

    async def names(self) -> list[str]:
        return [device.name for item in await self.published() for device in item.spec.devices]

    async def generations(self) -> set[tuple[int, int]]:
        """Generation and number of slices, as each slice tells."""
        return {(s.spec.pool.generation, s.spec.pool.resource_slice_count) for s in await self.published()}


@pytest.fixture
async def node(client: Client) -> Node:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    return Node(client, GPU, FUSE)


def test_what_a_slice_says() -> None:
    assert slice_specs(DRIVER, "n1", [GPU, FUSE], 7) == (
        {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 7, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"model": {"string": "a100"}, "index": {"int": 0}, "nvlink": {"bool": True}},
                    "capacity": {"slices": {"value": "2"}, "memory": {"value": "40Gi"}},
                    "taints": [{"key": "parley.dev/negotiated", "value": DRIVER, "effect": "NoSchedule"}],
                },
                {
                    "name": "fuse",
                    "attributes": {"model": {"string": "fuse"}, "index": {"int": 1}},
                    "capacity": {"slices": {"value": "1"}},
                    "taints": [{"key": "parley.dev/negotiated", "value": DRIVER, "effect": "NoSchedule"}],
                },
            ],
        },
    )


async def test_the_slice_goes_with_its_node(node: Node) -> None:
    await node.publisher.publish()
    (published,) = await node.published()
    (owner,) = published.metadata.owner_references
    uid = (await node.client.get(NODES, "n1")).metadata.uid
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Node", "n1", uid)


async def test_a_slice_of_an_earlier_version_gets_the_label(node: Node) -> None:
    await node.publisher.publish()
    (published,) = await node.published()
    assert published.metadata.labels == {PUBLISHED_BY_LABEL: NODE_PLUGIN}
    await node.client.patch(RESOURCE_SLICES, published.metadata.name, {"metadata": {"labels": None}})
    assert await node.another_publisher().publish()
    (published,) = await node.published()
    assert published.metadata.labels == {PUBLISHED_BY_LABEL: NODE_PLUGIN}


class WithoutRight(Client):
    """A client whose account may not publish for the driver: the policy published-slices refuses the label."""

    granted = False
    refused = 0

    async def request(self, call: Call) -> bytes:
        metadata = (call.body or {}).get("metadata", {})
        if not self.granted and PUBLISHED_BY_LABEL in (metadata.get("labels") or {}):
            self.refused += 1
            raise Forbidden(403, "Forbidden", "grant the verb publish")
        return await super().request(call)


@pytest.mark.looptime
async def test_who_may_not_publish_for_the_driver_publishes_without_the_label(
    node: Node, server: MemoryServer
) -> None:
    node.client = account = WithoutRight(server.client())
    async with running(node.another_publisher()):
        await asyncio.sleep(10)
        node.devices = (GPU,)
        await asyncio.sleep(500)
        (published,) = await node.published()
        assert not published.metadata.labels
        assert await node.names() == ["gpu-0"]
        assert await node.generations() == {(2, 1)}
        assert account.refused == 1

        account.granted = True
        await asyncio.sleep(200)
        (published,) = await node.published()
        assert published.metadata.labels == {PUBLISHED_BY_LABEL: NODE_PLUGIN}
        await asyncio.sleep(1000)
        assert await node.generations() == {(3, 1)}


async def test_the_label_is_tried_again_at_once_where_nothing_was_published(
    node: Node, server: MemoryServer
) -> None:
    class Nothing(WithoutRight):
        async def request(self, call: Call) -> bytes:
            if not self.granted and call.verb == "create":
                raise Forbidden(403, "Forbidden", "cannot create resource")
            return await super().request(call)

    node.client = account = Nothing(server.client())
    publisher = node.another_publisher()
    with pytest.raises(Forbidden, match="cannot create resource"):
        await publisher.publish()

    account.granted = True
    await publisher.publish()

    (published,) = await node.published()
    assert published.metadata.labels == {PUBLISHED_BY_LABEL: NODE_PLUGIN}


async def test_nothing_is_written_when_nothing_changed(node: Node) -> None:
    assert await node.publisher.publish()
    assert not await node.publisher.publish()
    assert not await node.another_publisher().publish()
    assert await node.generations() == {(1, 1)}


async def test_the_same_memory_in_other_words_is_no_change(node: Node) -> None:
    await node.publisher.publish()
    node.devices = (replace(GPU, capacity={"slices": "2", "memory": "40960Mi"}), FUSE)
    assert not await node.another_publisher().publish()


async def test_the_time_that_the_server_adds_to_taints_is_no_change(node: Node) -> None:
    await node.publisher.publish()
    (item,) = (await node.client.list(RESOURCE_SLICES.untyped())).items
    for device in item["spec"]["devices"]:
        for taint in device["taints"]:
            taint["timeAdded"] = "2026-01-01T00:00:00Z"
    body = {"spec": {"devices": item["spec"]["devices"]}}
    await node.client.patch(RESOURCE_SLICES, item["metadata"]["name"], body)
    assert not await node.another_publisher().publish()


async def test_a_device_that_came_raises_the_generation(node: Node) -> None:
    await node.publisher.publish()
    node.devices = (GPU, FUSE, Offer("gpu-1", {"model": "a100"}))
    assert await node.publisher.publish()
    assert await node.names() == ["gpu-0", "fuse", "gpu-1"]
    assert await node.generations() == {(2, 1)}


async def test_many_devices_are_spread_over_slices_and_surplus_ones_go(node: Node) -> None:
    node.devices = tuple(Offer(f"gpu-{number}", {"model": "a100"}) for number in range(130))
    await node.publisher.publish()
    assert sorted(len(item.spec.devices) for item in await node.published()) == [2, 64, 64]
    assert await node.generations() == {(1, 3)}
    node.devices = (GPU,)
    await node.publisher.publish()
    assert await node.names() == ["gpu-0"]
    assert await node.generations() == {(2, 1)}


async def test_a_node_without_devices_says_so(node: Node) -> None:
    node.devices = ()
    await node.publisher.publish()
    assert await node.names() == []
    assert await node.generations() == {(1, 1)}


async def test_slices_of_other_nodes_and_drivers_are_left_alone(node: Node) -> None:
    for name, driver, of in (("other-node", DRIVER, "n2"), ("other-driver", "gpu.example.com", "n1")):
        (spec,) = slice_specs(driver, of, [], 5)
        await node.client.create(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})
    await node.publisher.publish()
    kept = {item.metadata.name: item.spec.pool.generation for item in await node.published()}
    assert kept["other-node"] == kept["other-driver"] == 5


async def test_no_slice_without_its_node(client: Client) -> None:
    with pytest.raises(NotFound):
        await Node(client, GPU).publisher.publish()


@asynccontextmanager
async def running(publisher: SlicePublisher) -> AsyncIterator[None]:
    task = asyncio.create_task(publisher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.looptime
async def test_a_slice_that_somebody_deleted_is_back_within_seconds(node: Node) -> None:
    async with running(node.publisher):
        await asyncio.sleep(10)
        (published,) = await node.published()
        await node.client.delete(RESOURCE_SLICES, published.metadata.name)
        await asyncio.sleep(5)
        assert await node.names() == ["gpu-0", "fuse"]


@pytest.mark.looptime
async def test_a_slice_that_somebody_changed_is_put_right(node: Node) -> None:
    async with running(node.publisher):
        await asyncio.sleep(10)
        (published,) = await node.published()
        await node.client.patch(RESOURCE_SLICES, published.metadata.name, {"spec": {"devices": []}})
        await asyncio.sleep(5)
        assert await node.names() == ["gpu-0", "fuse"]


@pytest.mark.looptime
async def test_a_device_that_came_is_published_within_a_minute_or_so(node: Node) -> None:
    async with running(node.publisher):
        await asyncio.sleep(10)
        node.devices = (GPU,)
        await asyncio.sleep(65)
        assert await node.names() == ["gpu-0"]


@pytest.mark.looptime
async def test_a_node_that_registers_later_is_waited_for(client: Client) -> None:
    node = Node(client, GPU)
    async with running(node.publisher):
        await asyncio.sleep(20)
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await asyncio.sleep(60)
        assert await node.names() == ["gpu-0"]


@pytest.mark.looptime
async def test_a_driver_that_fails_to_tell_its_devices_is_asked_again(node: Node) -> None:
    faults = [ValueError("two of one name")]

    def devices() -> tuple[Offer, ...]:
        if faults:
            raise faults.pop()
        return node.devices

    async with running(SlicePublisher(node.client, driver=DRIVER, node="n1", devices=devices)):
        await asyncio.sleep(5)
        assert await node.names() == ["gpu-0", "fuse"]


async def test_what_a_driver_that_fails_said(node: Node) -> None:
    def devices() -> tuple[Offer, ...]:
        raise ValueError("two of one name")

    with pytest.raises(DevicesUnknown, match=r"^ValueError: two of one name$"):
        await SlicePublisher(node.client, driver=DRIVER, node="n1", devices=devices).publish()


ODD: tuple[Any, ...] = ({"capacity": {"memory": "much"}}, {"attributes": {"speed": 1.5}}, {"attributes": None})


@pytest.mark.parametrize("said", ODD)
async def test_what_a_driver_says_that_is_no_device_ends_nothing(node: Node, said: dict[str, Any]) -> None:
    odd = Offer("a", **said)
    with pytest.raises(DevicesUnknown):
        await SlicePublisher(node.client, driver=DRIVER, node="n1", devices=lambda: (odd,)).publish()


@pytest.mark.looptime
async def test_a_device_that_the_driver_calls_about_is_published_within_seconds(node: Node) -> None:
    async with running(node.publisher):
        await asyncio.sleep(10)
        node.devices = (GPU,)
        node.publisher.recheck()
        await asyncio.sleep(3)
        assert await node.names() == ["gpu-0"]


@pytest.mark.looptime
async def test_who_has_changed_what_is_told_can_wait_until_it_is_published(node: Node) -> None:
    async with running(node.publisher):
        await node.publisher.up_to_date()
        assert await node.names() == ["gpu-0", "fuse"]
        before, node.devices = asyncio.get_running_loop().time(), (GPU,)
        await node.publisher.up_to_date()
        assert await node.names() == ["gpu-0"]
        assert asyncio.get_running_loop().time() - before < 3


@pytest.mark.looptime
async def test_who_waits_until_it_is_published_waits_for_as_long_as_that_fails(
    node: Node,
) -> None:
    await node.publisher.publish()
    await node.client.delete(NODES, "n1")
    for item in await node.published():
        await node.client.delete(RESOURCE_SLICES, item.metadata.name)
    async with running(node.publisher):
        node.devices = (GPU,)
        waiting = asyncio.create_task(node.publisher.up_to_date())
        await asyncio.sleep(300)
        assert not waiting.done()
        await node.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await waiting
        assert await node.names() == ["gpu-0"]


@pytest.mark.looptime
async def test_who_waits_until_it_is_published_waits_while_the_driver_fails(node: Node) -> None:
    faults = [OSError("the disk")]

    def devices() -> tuple[Offer, ...]:
        if faults:
            raise faults[0]
        return node.devices

    publisher = SlicePublisher(node.client, driver=DRIVER, node="n1", devices=devices)
    async with running(publisher):
        waiting = asyncio.create_task(publisher.up_to_date())
        await asyncio.sleep(300)
        assert not waiting.done()
        faults.clear()
        await waiting
        assert await node.names() == ["gpu-0", "fuse"]


class WithoutTaints(Client):
    """A client of a server without the feature gate DRADeviceTaints: it drops the taints."""

    async def request(self, call: Call) -> bytes:
        body = _without_taints(call.body) if call.body else None
        return await super().request(replace(call, body=body))


def _without_taints(body: Body) -> Body:
    if "spec" not in body or "devices" not in body["spec"]:
        return body
    devices = [{**device, "taints": []} for device in body["spec"]["devices"]]
    return {**body, "spec": {**body["spec"], "devices": devices}}


@pytest.mark.looptime
async def test_a_server_that_drops_the_taints_is_not_written_to_for_ever(node: Node, server: MemoryServer) -> None:
    node.client = WithoutTaints(server.client())
    async with running(node.another_publisher()):
        await asyncio.sleep(300)
    assert await node.names() == ["gpu-0", "fuse"]
    assert await node.generations() == {(1, 1)}
