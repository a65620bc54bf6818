"""Reserved room whose user has its claims and is yet to be bound: another scheduler does not see that the node is
full by then."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import SECOND_SCHEDULER
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api.resources import PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("extender")


@pytest.mark.parametrize("claimed", [False, True], ids=["plain", "with a claim"])
def test_another_schedulers_pod_does_not_take_the_room_of_a_user_that_is_about_to_be_bound(
    play: Any, claimed: bool
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "4"}, mode="Immediate")
        await claim(world, "other", mode="Immediate")
        await world.add_pod("ordinary", nodeName="a", containers=requesting(cpu=4))
        await world.settle()
        claims = ["other"] if claimed else []
        assert await task(world, "early", *claims, cpu="2", schedulerName=SECOND_SCHEDULER) == ""
        await world.delete_pod("early")
        await world.add_pod("user", claims=["build"], containers=requesting(cpu=4), schedulerName="asleep")
        await world.settle(5)
        assert await task(world, "late", *claims, cpu="2", schedulerName=SECOND_SCHEDULER) == ""
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        await world.client.create_subresource(PODS, "user", "binding", {"target": target}, "default")
        await world.settle()
        await world.delete_pod("user")
        await world.delete_pod("ordinary")
        await asyncio.sleep(60)
        assert await world.node_of("late") == "a"

    play(scenario)
