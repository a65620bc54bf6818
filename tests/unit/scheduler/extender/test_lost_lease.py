"""A process that was stopped, and does not lead any more, tells a scheduler nothing."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.extender.test_unknown_pods import extender_of

from parley.kube.client import Client
from parley.kube.lease import LeaseLost

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Stopped(Client):
    """Its process may not write any more, once it is `lost`."""

    lost = False

    def check_lease(self) -> None:
        if self.lost:
            raise LeaseLost("lease parley/controller: a did not renew it")


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
def test_no_call_is_answered_without_the_lease(play: Any, verb: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        client = Stopped(world.server.client())
        world.start_parley(client)
        await world.settle()
        client.lost = True
        with pytest.raises(LeaseLost):
            await extender_of(world).answer(verb, b"{}")

    play(scenario)
