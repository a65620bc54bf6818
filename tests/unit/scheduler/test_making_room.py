"""The scheduler evicts pods of lower priority, which take a while to leave: it refuses their node until then."""

import asyncio
from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.grump import APART, add_grump

pytestmark = pytest.mark.scheduling_paths("native")


@pytest.mark.parametrize("named", [True, False])
def test_the_node_is_offered_again_after_pauses(play: Any, named: bool) -> None:
    """Another node would do but for the claim, so the scheduler clears the claim whenever it refuses the pod."""

    async def scenario(world: World) -> None:
        await world.add_node("a", 2)
        await world.add_node("b", 0)
        await world.add_class()
        await world.add_template("one")
        world.start_parley()
        await world.add_claim("disk")
        await add_grump(world, "a")
        await world.settle(5)
        world.kubelets.stop("a")
        wanted: dict[str, Any] = {"claims": ["disk"]} if named else {}
        await world.add_pod("urgent", *([] if named else ["one"]), priority=10, affinity=APART, **wanted)
        await asyncio.sleep(3)
        assert (await world.pod("grump-a")).metadata.deletion_timestamp
        assert int((await world.pod("urgent")).metadata.resource_version) < 100
        await asyncio.sleep(30)
        world.kubelets.start("a")
        await asyncio.sleep(60)
        assert await world.node_of("urgent") == "a"

    play(scenario)
