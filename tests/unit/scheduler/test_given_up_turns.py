"""A pod that can't have the named claim whose turn it has: other pods get the claim without waiting for it."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import CLAIMS, CLASSES
from parley.api.selectors import node_selector
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class SlowTokens(TokensDriver):
    """As slow as a driver in the controller may be."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(25)
        return await super().allocate(request, node)


class SlowDevices(DeviceDriver):
    """As slow as a driver in the controller may be."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(25)
        return await super().allocate(request, node)


def test_the_driver_of_another_claim_takes_no_more_calls(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_class("seat", nodePart="None", parameters={"pool": 1000, "scope": "Node"})
        await world.client.patch(CLASSES, "seat", {"driverName": SlowTokens.name})
        await world.add_template("seat", "seat")
        await world.add_claim("disk")
        world.start_parley(drivers=[DeviceDriver(), SlowTokens()])
        await world.add_pod("user", claims=["disk"])
        await world.settle()
        assert await world.node_of("user") == "a"
        await world.add_pod("first", "seat", claims=["disk"])
        await asyncio.sleep(5)
        await world.add_pod("second", claims=["disk"])
        for i in range(60):
            await world.add_pod(f"busy-{i}", "seat")
        await asyncio.sleep(5)
        await world.delete_pod("user")
        await asyncio.sleep(15)
        assert await world.node_of("first") == ""
        assert await world.node_of("second") == "a"
        await world.delete_pod("second")
        await asyncio.sleep(600)
        assert await world.node_of("first") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_another_driver_has_allocated_its_other_claim_elsewhere(play: Any) -> None:
    """It had begun before the claim's class became another driver's."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_node("b")
        for name in ("gpu", "other"):
            await world.add_class(name)
        await world.add_claim("mine")
        await world.add_claim("elsewhere", "other")
        world.start_parley(drivers=[SlowDevices()])
        await world.settle(5)
        await world.add_pod("first", claims=["mine", "elsewhere"])
        await asyncio.sleep(5)
        await world.add_pod("second", claims=["mine"])
        await asyncio.sleep(2)
        other = "other.example.com"
        await world.client.patch(CLASSES, "other", {"driverName": other})
        handles = [{"driverName": other, "data": {}}]
        allocation = {"handles": handles, "availableOnNodes": node_selector(["b"])}
        recorded = {"status": {"driverName": other, "allocation": allocation}}
        await world.client.patch(CLAIMS, "elsewhere", recorded, "default", subresource="status")
        await asyncio.sleep(100)
        assert await world.node_of("first") == ""
        assert await world.node_of("second") == "a"

    play(scenario)
