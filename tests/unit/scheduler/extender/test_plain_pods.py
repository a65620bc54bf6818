"""Pods without claims beside reserved room: they wait for it in the same line, and cost little."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.effort import calls
from tests.unit.scheduler.conftest import SECOND_SCHEDULER
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api.resources import CLAIMS, NODES, PODS
from parley.control.room import Requester, room_shortage

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


def test_where_there_is_room_beside_all_that_is_reserved_nobody_looks_who_uses_it(play: Any) -> None:
    """The scheduler asks about all nodes for each such pod, and all pods wait for each answer."""

    async def scenario(world: World) -> None:
        await begin(world, "a")
        names = [f"build-{i}" for i in range(40)]
        for name in names:
            await claim(world, name, {"cpu": "100m"}, mountPath=f"/{name}")
        assert await task(world, "clone", *names, cpu="100m") == "a"
        assert world.controller is not None
        state = world.controller._base.state

        def lacks(cpu: int) -> str:
            return room_shortage(state, "a", Requester("default", "plain", {"cpu": cpu, "pods": 1000}))

        assert [lacks(cpu) == "" for cpu in (3900, 4000, 4001)] == [True, True, False]
        assert calls(lambda: lacks(3900)) < calls(lambda: lacks(4000)) / 3

    play(scenario)
