"""Pods are deleted with `--cascade=foreground`: the garbage collector deletes what they own while they run."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.test_orphaned_standins import equipped

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS

Play = Callable[..., None]


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("by_force", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_standalone_driver_allocated_for_one_is_free_when_it_has_ended(
    play: Play, by_force: bool, restarted: bool
) -> None:
    """Its user decides how long a pod may take to end."""

    async def scenario(world: World) -> None:
        driver = Disks("a")
        await equipped(world, driver)
        world.start_parley()
        await world.add_pod("former", "disk")
        await world.settle()
        assert await world.node_of("former") == "a"
        world.kubelets.stop("a")
        await world.client.delete(PODS, "former", NAMESPACE, propagation_policy="Foreground")
        await world.add_pod("next", "disk")
        if restarted:
            await world.crash()
            world.start_parley()
        await world.settle()
        assert await world.node_of("former") == "a"
        assert await world.node_of("next") == ""
        assert len(driver.held) == 1

        if by_force:
            await world.force_delete("former")
            await world.settle()
            assert len(driver.held) == 1
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("next") == "a"
        await world.delete_pod("next")
        await world.settle()
        assert driver.held == {}
        assert not (await world.client.list(CLAIMS, NAMESPACE)).items

    play(scenario)


def test_after_a_forced_deletion_it_is_free_though_the_built_in_claim_is_seen_to_go_later(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = Disks("a")
        await equipped(world, driver)
        watch = HeldWatch(world.server.client(), BUILTIN_CLAIMS)
        world.start_parley(watch)
        await world.add_pod("former", "disk")
        await world.settle()
        watch.open.clear()
        await world.force_delete("former")
        await asyncio.sleep(60)
        watch.open.set()
        await world.settle()
        assert driver.held == {}
        assert not (await world.client.list(CLAIMS, NAMESPACE)).items

    play(scenario)
