"""A pod whose turn it is for a named claim, while the driver of its other claim takes no more calls."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parley.api.resources import CLASSES
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Slow(TokensDriver):
    """As slow as a driver in the controller may be."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(25)
        return await super().allocate(request, node)


def test_other_pods_need_not_wait_for_it_to_have_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_class("seat", nodePart="None", parameters={"pool": 1000, "scope": "Node"})
        await world.client.patch(CLASSES, "seat", {"driverName": Slow.name})
        await world.add_template("seat", "seat")
        await world.add_claim("disk")
        world.start_parley(drivers=[DeviceDriver(), Slow()])
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
