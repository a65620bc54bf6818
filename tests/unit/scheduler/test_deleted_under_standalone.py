"""Claims of standalone drivers are deleted while pods run with them, or while the driver allocates."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.held_watch import HeldWatch

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, POD_SCHEDULINGS
from parley.control.objects.mirror import driver_of
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


Play = Callable[[Callable[[World], Any]], None]


def test_what_a_standalone_driver_allocated_stays_over_a_restart_though_its_class_is_another_drivers_now(
    play: Play,
) -> None:
    async def story(world: World) -> None:
        disks = Disks("ab")
        await prepare(world, disks, nodes="ab")
        await world.add_pod("p", "disk")
        await world.settle()
        ((uid, node),) = disks.held.items()
        (mirror,) = await world.mirrors()
        await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
        await world.client.patch(CLASSES, "disk", {"driverName": DeviceDriver.name})
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle()
        await world.change_pod("p")
        await world.settle()
        (made_again,) = await world.mirrors()
        assert made_again.status.allocation is not None
        assert driver_of(made_again.status.allocation) == disks.name
        assert disks.held == {uid: node}
        await world.delete_pod("p")
        await world.settle()
        assert disks.held == {}
        await nothing_is_left(world)

    play(story)


def test_a_pod_whose_claim_is_recreated_while_its_driver_allocates_does_not_count_for_the_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        claims = HeldWatch(world.server.client(), BUILTIN_CLAIMS)
        disks = Disks(["a"], seconds=20)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        await world.add_class("disk", driverName=disks.name)
        await world.add_template("disk", "disk")
        world.start_parley(claims)
        world.start_driver(disks)
        large = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "6"}}}]
        await world.add_pod("p", "disk", containers=large)
        await asyncio.sleep(10)
        assert disks.tried == ["a"]
        disks.nodes = []
        claims.open.clear()
        (mirror,) = await world.mirrors()
        await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
        await world.change_pod("p")
        await asyncio.sleep(1)
        claims.open.set()
        await asyncio.sleep(60)
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"
        await world.add_pod("q", "one", containers=large)
        await asyncio.sleep(60)
        assert await world.node_of("q") == "a"

    play(scenario)


def test_a_standalone_driver_is_not_asked_for_the_next_claim_of_the_name_while_a_pod_runs_with_the_former_one(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a"])
        await prepare(world, disks)
        await world.add_claim("data", "disk")
        await world.add_pod("old", claims=["data"])
        await world.settle(60)
        former = await world.claim("data")
        await world.client.patch(CLAIMS, "data", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(CLAIMS, "data", "default")
        await world.settle(5)
        await world.client.patch(BUILTIN_CLAIMS, "data", {"metadata": {"finalizers": None}}, "default")
        await world.settle(60)
        await world.add_claim("data", "disk")
        await world.add_pod("new", claims=["data"])
        await world.settle(120)
        for pod in ("old", "new"):
            told = (await world.client.get(POD_SCHEDULINGS, pod, "default")).status.message
            assert told == (
                "claim default/data is not the one that pod default/old runs with, which was removed: wait until "
                "that pod has ended, or use another name"
            )
        claim = await world.claim("data")
        assert claim.metadata.uid != former.metadata.uid
        assert claim.status.allocation is None

        await world.delete_pod("old")
        await world.settle(120)
        assert await world.node_of("new") == "a"
        assert (await world.claim("data")).status.allocation is not None

    play(scenario)
