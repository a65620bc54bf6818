"""The controller starts beside an API server that is not quite there yet."""

from typing import TYPE_CHECKING, Any

from tests.support.faults import FaultClient

from parley.api.resources import POD_SCHEDULINGS
from parley.kube.client import Call, TooManyRequests

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


def test_a_server_that_still_initializes_a_kind_is_asked_again(play: Any) -> None:
    def refuse_once(call: Call) -> None:
        if call.resource == POD_SCHEDULINGS and call.verb == "list" and not refused:
            refused.append(call)
            raise TooManyRequests(429, "TooManyRequests", "storage is (re)initializing")

    refused: list[Call] = []

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=refuse_once))
        await world.add_pod("p", "one")
        await world.settle()
        assert refused
        assert await world.node_of("p") == "a"

    play(scenario)
