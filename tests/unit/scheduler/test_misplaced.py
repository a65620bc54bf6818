"""A running pod whose named claim was forced away, and is allocated elsewhere by now."""

from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import World

Play = Callable[..., None]


@pytest.mark.scheduling_paths("native", "extender")
def test_what_else_it_uses_stays_its_own(play: Play) -> None:
    """The claim controller reserves the new claim for it, which ties it to another node."""

    async def scenario(world: World) -> None:
        await world.add_node("b", devices=2)
        await world.add_node("c", devices=1)
        await world.add_class()
        await world.add_class("shared", shareable=True)
        await world.add_template()
        await world.add_claim("common", "shared")
        world.start_parley()
        on = "kubernetes.io/hostname"
        await world.add_pod("running", "one", claims=["common"], nodeSelector={on: "b"})
        await world.settle()
        assert await world.node_of("running") == "b"
        await world.force_away("common")
        await world.settle()
        await world.add_claim("common", "shared")
        await world.add_pod("other", claims=["common"], nodeSelector={on: "c"})
        await world.settle()
        assert await world.node_of("other") == "c"
        common = await world.mirror("common")
        assert common is not None
        assert {user.name for user in common.status.reserved_for} == {"other", "running"}

        await world.finish_pod("other")
        await world.settle()

        (own,) = [mirror for mirror in await world.mirrors() if mirror.metadata.name != "common"]
        assert [user.name for user in own.status.reserved_for] == ["running"]
        assert own.status.allocation is not None

    play(scenario)
