"""An administrator deletes the stand-in that a standalone driver allocates: afterwards the pod gets another."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLAIMS

Play = Callable[..., None]


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("away", [0.0, 100.0], ids=["", "the driver is away"])
def test_the_pod_is_placed_after_it(play: Play, away: float) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class("disk", driverName=Disks.name, nodePart="None")
        await world.add_template("disk", "disk")
        world.start_parley()
        driver = world.start_driver(Disks(["a", "b"], seconds=20))
        await world.add_pod("p", "disk")
        await asyncio.sleep(5)
        if away:
            world.killed.add(driver)
            driver.cancel()
        (stand_in,) = (await world.client.list(CLAIMS, NAMESPACE)).items
        await world.client.delete(CLAIMS, stand_in.metadata.name, NAMESPACE)
        if away:
            await asyncio.sleep(away)
            world.start_driver(Disks(["a", "b"], seconds=20))
        await world.settle()
        assert await world.node_of("p")

    play(scenario)
