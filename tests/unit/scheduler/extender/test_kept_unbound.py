"""A pod that was not bound after all, and could not be relieved of what it holds at once, does not keep it."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.extender.test_standalone import Slow, begin
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import PODS
from parley.kube.client import OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


def test_others_get_what_a_pod_holds_that_its_scheduler_finds_no_node_for_any_more(play: Any) -> None:
    async def scenario(world: World) -> None:
        away: list[bool] = []

        def lose(call: NumberedCall) -> None:
            if call.resource == PODS and call.subresource == "binding" and not away:
                away.append(True)
            if away == [True] and call.verb != "watch":
                raise OutcomeUnknown("the API server is out of reach")

        await world.add_node("n")
        await add_shelf_class(world)
        client = FaultClient(world.server.client(), before=lose)
        world.start_parley(client, drivers=[ShelfDriver(Behaviour(other=1))])
        await world.settle(2)
        await world.add_pod("apart", "shelf", affinity=APART)
        await asyncio.sleep(0.5)
        assert away == [True]
        await add_grump(world, "n")
        await asyncio.sleep(10)
        away.append(False)
        await world.add_pod("alike", "shelf")
        await asyncio.sleep(1000)
        assert await world.node_of("apart") == ""
        assert await world.node_of("alike") == "n"

    play(scenario)


def test_others_get_what_a_standalone_driver_allocated_for_such_a_pod(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, tokens=1, driver=Slow())
        await world.add_pod("apart", "licence", affinity=APART)
        await asyncio.sleep(10)
        for node in ("a", "b", "c"):
            await add_grump(world, node)
        await world.add_pod("alike", "licence")
        await asyncio.sleep(1000)
        assert await world.node_of("apart") == ""
        assert await world.node_of("alike")

    play(scenario)
