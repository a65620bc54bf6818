"""Pods that ask standalone drivers about other nodes do not wait for each other."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.extender.test_standalone import begin
from tests.unit.scheduler.grump import APART, add_grump

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@pytest.mark.parametrize("scheduler", ["parley", "default-scheduler"])
def test_a_pod_gets_in_where_the_first_that_wants_the_same_may_not(play: Any, scheduler: str) -> None:
    """The scheduler leaves node a out for the first one, which looks alike to Parley."""

    async def scenario(world: World) -> None:
        await begin(world, tokens=10)
        for node in ("b", "c"):
            await world.plugin_gone(node)
        await world.add_pod("user", "one", "one", nodeName="a")
        await add_grump(world, "a")
        await world.settle()
        await world.add_pod("first", "one", "licence", affinity=APART)
        await world.settle()
        await world.add_pod("second", "one", "licence", schedulerName=scheduler)
        await world.settle()
        assert await world.node_of("second") == ""
        await world.delete_pod("user")
        await world.settle(400)
        assert await world.node_of("first") == ""
        assert await world.node_of("second") == "a"

    play(scenario)
