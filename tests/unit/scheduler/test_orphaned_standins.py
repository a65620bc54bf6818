"""Pods are deleted with `--cascade=orphan`: their stand-ins lose their owner, and nobody collects them."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLAIMS, CLASSES, PODS

Play = Callable[..., None]


async def equipped(world: World, driver: Disks) -> None:
    await world.add_node("a", devices=1)
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": Disks.name})
    await world.add_template("disk", "disk")
    world.start_driver(driver)


async def _delete(world: World, name: str, *, grace: int | None) -> None:
    await world.client.delete(PODS, name, NAMESPACE, grace_period_seconds=grace, propagation_policy="Orphan")


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("grace", [None, 0], ids=["gracefully", "by force"])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["seen", "while no controller runs"])
def test_what_a_standalone_driver_allocated_for_them_is_free_again(
    play: Play, grace: int | None, meanwhile: bool
) -> None:
    """Its user could not even delete the stand-in: that is Parley's."""

    async def scenario(world: World) -> None:
        driver = Disks("a")
        await equipped(world, driver)
        world.start_parley()
        await world.add_pod("former", "disk")
        await world.settle()
        assert await world.node_of("former") == "a"
        if meanwhile:
            await world.crash()
        await _delete(world, "former", grace=grace)
        await asyncio.sleep(60)
        if meanwhile:
            world.start_parley()
        await world.settle()

        assert driver.held == {}
        assert not (await world.client.list(CLAIMS, NAMESPACE)).items
        await world.add_pod("next", "disk")
        await world.settle()
        assert await world.node_of("next") == "a"

    play(scenario)
