"""A pod that has all its claims keeps them for a time for its scheduler to bind it, each time anew."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.scheduler.attempts import PATIENCE
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


def test_it_begins_anew_after_a_scheduler_refused_a_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        await world.add_claim("disk", "shelf")
        behaviour = Behaviour(other=1)
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.add_pod("p", claims=["disk"], schedulerName="thoughtful")
        await asyncio.sleep(PATIENCE.first - 10)
        mirror = await world.mirror("disk")
        assert mirror is not None
        await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None, "devices": None})
        await asyncio.sleep(PATIENCE.first - 10)
        assert len(behaviour.allocated) == 2
        await asyncio.sleep(20)
        assert len(behaviour.allocated) == 3

    play(scenario)
