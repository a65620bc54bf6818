"""A pod without claims was kept out of reserved room; the controller is replaced while the room comes free."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.conftest import SECOND_SCHEDULER
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api.resources import CLAIMS
from parley.drivers.workspace import WorkspaceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("extender")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_plain_pod_comes_when_the_room_is_free(play: Any, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "6", "pods": 2}, mode="Immediate")
        await world.settle()
        assert (await world.claim("build")).status.allocation is not None
        assert await task(world, "plain", cpu="4", schedulerName=SECOND_SCHEDULER) == ""
        if restarts:
            await world.crash()
            world.start_parley(drivers=[WorkspaceDriver()])
            await asyncio.sleep(60)
        await world.client.delete(CLAIMS, "build", "default")
        await asyncio.sleep(30)
        assert await world.node_of("plain") == "a"

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_plain_pod_evicts_others_once_what_kept_it_from_that_is_not_reserved_any_more(
    play: Any, restarts: bool
) -> None:
    """Its scheduler's own filters reject the node, and no pod leaves it."""

    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "disk", {"cpu": "4"}, "Immediate")
        await world.settle()
        assert await task(world, "weak", cpu="4", priority=1, schedulerName=SECOND_SCHEDULER) == "a"
        assert await task(world, "important", cpu="6", priority=10, schedulerName=SECOND_SCHEDULER) == ""
        if restarts:
            await world.crash()
        await world.client.delete(CLAIMS, "disk", "default")
        if restarts:
            world.start_parley(drivers=[WorkspaceDriver()])
        await world.settle()
        assert await world.node_of("important") == "a"

    play(scenario)
