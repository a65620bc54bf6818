"""A pod with claims may request an extended resource that a DRA driver allocates: nodes need not have it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import DEVICE_CLASSES, NODES
from parley.control.caches.wanted import SYNC_SECONDS
from parley.kube.client import Call, Client, Forbidden

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

FPGA = "example.com/fpga"
IMPLICIT = "deviceclass.resource.kubernetes.io/fpga"


async def begin(world: World, client: Client | None = None) -> None:
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    world.start_parley(client)
    await world.settle(2)


async def device_class(world: World, name: str = "fpga", resource: str = FPGA) -> None:
    spec = {"extendedResourceName": resource} if resource else {}
    await world.create(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": spec})
    await world.settle(2)


async def add_pod(world: World, resource: str = FPGA) -> None:
    limits = {"limits": {resource: "1"}}
    await world.add_pod("p", "one", containers=[{"name": "main", "image": "none", "resources": limits}])
    await world.settle(2)


async def refusal(world: World) -> str:
    return (await world.scheduling("p")).status.message


@pytest.mark.parametrize(
    ("of_class", "requested"),
    [(FPGA, FPGA), (FPGA, IMPLICIT), ("", IMPLICIT)],
    ids=["named", "implicit", "implicit alone"],
)
def test_the_claim_is_allocated_on_a_node_without_the_resource(play: Play, of_class: str, requested: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await device_class(world, resource=of_class)
        await add_pod(world, requested)
        assert await world.devices() == {("a", "gpu-0"): 1}

    play(scenario)


@pytest.mark.parametrize(
    ("name", "of_class", "requested"),
    [("fpga", "example.com/other", FPGA), ("other", "", IMPLICIT)],
    ids=["another resource", "another class"],
)
def test_a_resource_of_no_class_has_to_be_the_nodes_own(
    play: Play, name: str, of_class: str, requested: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await device_class(world, name, of_class)
        await add_pod(world, requested)
        assert not await world.devices()
        assert f"node a: too little {requested} left" in await refusal(world)

    play(scenario)


def test_a_node_that_has_the_resource_itself_has_to_have_enough(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await device_class(world)
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", FPGA: "1"}
        await world.client.patch(NODES, "a", {"status": {"allocatable": allocatable}}, subresource="status")
        taken = [{"name": "main", "image": "none", "resources": {"limits": {FPGA: "1"}}}]
        await world.add_pod("ordinary", containers=taken)
        await world.settle(2)
        assert await world.node_of("ordinary") == "a"
        await add_pod(world)
        assert f"node a: too little {FPGA} left" in await refusal(world)

    play(scenario)


def test_a_class_that_comes_later_wakes_the_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await add_pod(world)
        assert f"node a: too little {FPGA} left" in await refusal(world)
        await device_class(world)
        assert await world.devices() == {("a", "gpu-0"): 1}

    play(scenario)


class Refused(Client):
    """Of a role without the right to read DeviceClasses, once the second scheduler's part has listed them."""

    refusing = False

    async def request(self, call: Call) -> bytes:
        if self.refusing and call.resource == DEVICE_CLASSES:
            raise Forbidden(403, "Forbidden", "deviceclasses is forbidden")
        return await super().request(call)


def test_without_the_right_to_read_classes_nodes_have_to_have_the_resource(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Refused(world.server.client())
        await begin(world, client)
        client.refusing = True
        await device_class(world)
        await add_pod(world)
        await asyncio.sleep(SYNC_SECONDS)
        assert f"node a: too little {FPGA} left" in await refusal(world)

    play(scenario)
