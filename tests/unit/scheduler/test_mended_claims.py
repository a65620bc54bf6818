"""A named claim that was wrong is recreated under the pod that waits for it."""

from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import CLAIMS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_a_pod_whose_claim_is_made_anew_with_good_parameters_is_bound(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_claim("mine", count=0)
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        assert (await world.scheduling("p")).status.waiting_for == "ParametersInvalid"

        await world.client.delete(CLAIMS, "mine", "default")
        await world.settle()
        await world.add_claim("mine")
        await world.settle()

        assert await world.node_of("p") == "a"

    play(scenario)
