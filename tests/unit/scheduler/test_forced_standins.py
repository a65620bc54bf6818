"""What standalone drivers allocated for pods that are forced away, or whose other claims stay, is free."""

import asyncio
from collections.abc import Callable

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.test_orphaned_standins import equipped
from tests.unit.scheduler.test_refused_writes import Quota

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS

Play = Callable[..., None]


async def _is_free(world: World, driver: Disks) -> None:
    await world.settle()
    assert driver.held == {}
    assert not (await world.client.list(CLAIMS, NAMESPACE)).items


@pytest.mark.scheduling_paths("native", "extender")
def test_it_is_free_before_their_generated_claims_are_gone(play: Play) -> None:
    """These show them as users until the garbage collector comes to them."""

    async def scenario(world: World) -> None:
        driver = Disks("a")
        await equipped(world, driver)
        world.start_parley()
        await world.add_pod("former", "disk")
        await world.settle()
        assert await world.node_of("former") == "a"
        world.server.garbage_lag = lambda: 5.0
        await world.force_delete("former")
        await _is_free(world, driver)

    play(scenario)


@pytest.mark.scheduling_paths("extender")
def test_it_is_free_where_it_was_allocated_when_their_generated_claims_were_gone(play: Play) -> None:
    """A controller that starts then knows of nobody who uses it."""

    async def scenario(world: World) -> None:
        driver = Disks("a", seconds=20.0)
        await equipped(world, driver)
        world.start_parley()
        await world.add_pod("former", "disk")
        await asyncio.sleep(10)
        await world.stop_claim_controller()
        (mirror,) = await world.mirrors()
        await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, NAMESPACE)
        await asyncio.sleep(60)
        assert len(driver.held) == 1
        await world.crash()
        world.start_parley()
        await world.settle()
        await world.force_delete("former")
        await _is_free(world, driver)

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_it_is_free_where_another_claim_of_a_pod_that_has_ended_cannot_be_cleared(play: Play) -> None:
    async def scenario(world: World) -> None:
        quota = Quota(BUILTIN_CLAIMS)
        quota.full = False
        driver = Disks("a")
        await equipped(world, driver)
        await world.add_class()
        await world.add_claim("c")
        refusing = FaultClient(
            world.server.client(), before=lambda call: quota(call) if call.name == "c" else None
        )
        world.start_parley(refusing)
        await world.add_pod("former", "disk", claims=["c"])
        await world.settle()
        assert await world.node_of("former") == "a"
        quota.full = True
        await world.finish_pod("former")
        await world.settle(quiet=5.0)
        assert quota.refused
        assert driver.held == {}

    play(scenario)
