"""Of pods that wait for the same the scheduler may not ask about the first: those behind it get in too."""

from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.extender.test_waiting import begin
from tests.unit.scheduler.grump import APART, add_grump

from parley.api.resources import CLAIMS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


def test_a_pod_gets_in_though_its_scheduler_finds_no_node_any_more_for_the_first_that_wants_the_same(
    play: Any,
) -> None:
    """No event of a pod or node tells the scheduler of the free place: it asks about those that Parley changes."""

    async def scenario(world: World) -> None:
        await begin(world, nodes=1)
        await world.add_claim("disk", "shelf", "Immediate")
        await world.settle()
        for name, affinity in (("apart", APART), ("alike", {})):
            await world.add_pod(name, "shelf", affinity=affinity)
            await world.settle()
        await add_grump(world, "n0")
        await world.settle()

        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert await world.node_of("apart") == ""
        assert await world.node_of("alike") == "n0"

    play(scenario)
