"""Pods that their creators bind, as a DaemonSet of old did, with claims of standalone drivers."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLASSES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_the_class_becomes_shareable_while_the_driver_allocates(play: Any, fails: bool) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        disks = Disks(["a"], seconds=20)
        disks.flaky |= {"a"} if fails else set()
        world.start_parley()
        world.start_driver(disks)
        await world.add_class("disk", driverName=Disks.name)
        await world.add_claim("scratch", "disk")
        await world.settle()
        await world.add_pod("p", claims=["scratch"], nodeName="a")
        await asyncio.sleep(10)
        assert disks.tried == ["a"]
        await world.client.patch(CLASSES, "disk", {"shareable": True})
        await asyncio.sleep(20)
        disks.flaky.clear()
        await world.settle()
        assert (await world.pod("p")).status.phase == "Running"

    play(scenario)


def test_it_counts_for_its_node_while_its_driver_fails_there(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        disks = Disks(["a"])
        disks.flaky.add("a")
        world.start_parley()
        world.start_driver(disks)
        await world.add_class("disk", driverName=Disks.name)
        await world.add_claim("scratch", "disk")
        await world.add_class()
        await world.add_template()
        await world.settle()
        large = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "6"}}}]
        await world.add_pod("p", claims=["scratch"], nodeName="a", containers=large)
        await asyncio.sleep(60)
        assert disks.tried
        await world.add_pod("q", "one", containers=large)
        await asyncio.sleep(60)
        assert (await world.scheduling("q")).status.waiting_for == "NoCandidates"
        assert all(mirror.status.allocation is None for mirror in await world.mirrors())

    play(scenario)
