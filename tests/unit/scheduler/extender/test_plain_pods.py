"""Pods without claims that wait for reserved room in the same line."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.conftest import SECOND_SCHEDULER
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api.resources import CLAIMS, NODES, PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("extender")


@pytest.mark.parametrize("bound", [False, True])
def test_the_next_one_comes_when_the_room_is_free_also_if_others_bound_the_first(play: Any, bound: bool) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_node("b")
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await claim(world, "build", {"cpu": "6", "pods": 2}, mode="Immediate")
        await world.settle()
        for name in ("first", "second"):
            assert await task(world, name, cpu="4", schedulerName=SECOND_SCHEDULER) == ""
        if bound:
            target = {"apiVersion": "v1", "kind": "Node", "name": "b"}
            await world.client.create_subresource(PODS, "first", "binding", {"target": target}, "default")
            await world.settle()
        await world.client.delete(CLAIMS, "build", "default")
        await asyncio.sleep(30)
        assert await world.node_of("second") == "a"

    play(scenario)
