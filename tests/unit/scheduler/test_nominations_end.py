"""What others give up is kept for a preemptor for ten minutes at most, whatever it does with it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import begin, hold

from parley.control.nominations import KEPT_SECONDS
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_others_get_what_was_kept_for_a_pod_whose_driver_fails_again_and_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = DeviceDriver.allocate

    async def failing(driver: Any, request: Any, node: str) -> Any:
        if len(request.claims) == 2:
            raise RuntimeError("the devices can't be coupled")
        return await allocate(driver, request, node)

    monkeypatch.setattr(DeviceDriver, "allocate", failing)

    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.add_pod("urgent", "one", "one", priority=10)
        await world.settle(5)
        await world.add_pod("late", "one", priority=10, preemptionPolicy="Never")
        await asyncio.sleep(KEPT_SECONDS + 200)
        assert not await world.node_of("urgent")
        assert await world.node_of("late") == "a"

    play(scenario)
