"""Limits of classes hold while standalone drivers undo what they have begun for pods that are gone."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.shelf import restart

from parley.api.resources import CLAIMS, CLASSES
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Releasing(Disks):
    """Takes a minute to attach a disk, and to detach it."""

    async def deallocate(self, uid: str) -> None:
        if uid in self.held:
            await asyncio.sleep(60)
        await super().deallocate(uid)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_pods_that_come_and_go_have_a_driver_begin_with_no_more_than_the_limit(
    play: Any, named: bool, restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        disks, most = Releasing("abc", seconds=60), 0
        await prepare(world, disks)
        await world.client.patch(CLASSES, "disk", {"limits": [{"claims": 1}]})
        await world.settle()
        for name in ("p", "q", "r"):
            if named:
                await world.add_claim(name, "disk")
                await world.add_pod(name, claims=[name])
            else:
                await world.add_pod(name, "disk")
            for _ in range(10):
                await asyncio.sleep(1)
                most = max(most, len(disks.held))
            await world.delete_pod(name)
            if restarted:
                await asyncio.sleep(1)
                await restart(world, [DeviceDriver()])
        await world.add_pod("last", "disk")
        for _ in range(300):
            await asyncio.sleep(1)
            most = max(most, len(disks.held))
        assert most == 1
        assert await world.node_of("last")
        assert len(disks.held) == 1

    play(scenario)


def test_what_a_driver_that_is_gone_has_begun_does_not_count_for_the_next_driver_of_the_class(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks("abc", seconds=60)
        for node in "abc":
            await world.add_node(node, devices=1)
        await world.add_class("disk", driverName=disks.name, limits=[{"claims": 1}])
        await world.add_template("disk", "disk")
        world.start_parley()
        driver = world.start_driver(disks)
        await world.settle()
        await world.add_pod("p", "disk")
        await asyncio.sleep(10)
        world.killed.add(driver)
        driver.cancel()
        await world.delete_pod("p")
        await world.add_pod("q", "disk")
        await world.settle()
        assert not await world.node_of("q")
        assert [claim.metadata.finalizers for claim in (await world.client.list(CLAIMS)).items]
        await world.client.patch(CLASSES, "disk", {"driverName": "device.parley.dev"})
        await world.settle()
        assert await world.node_of("q")

    play(scenario)
