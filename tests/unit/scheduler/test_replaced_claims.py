"""A named claim goes, and another one takes its name, while a driver allocates the former."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import CLAIMS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


@pytest.mark.scheduling_paths("native", "extender")
def test_what_comes_of_that_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, trouble=slow(10))
        driver = ShelfDriver(behaviour)
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        world.start_parley(drivers=[driver])
        await world.add_claim("disk", "shelf")
        await world.settle()
        await world.add_pod("p", claims=["disk"])
        await asyncio.sleep(5)
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(1)
        await world.add_claim("disk", "shelf")
        await world.settle()
        claim = await world.claim("disk")
        assert await world.node_of("p")
        assert [holding.uid for holding in world.ledger] == list(driver.held) == [claim.metadata.uid]
        assert [user.name for user in claim.status.reserved_for] == ["p"]

    play(scenario)
