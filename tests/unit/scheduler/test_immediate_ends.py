"""Claims with allocationMode Immediate keep their allocation over restarts and until they are deleted."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.immediate_claims import gpus, is_free, is_used_by, shelves
from tests.unit.scheduler.shelf import Behaviour, restart, slow

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


def test_a_deleted_claim_goes_after_its_last_pod_and_gives_its_device_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.add_pod("late", claims=["now"])
        await world.add_pod("other", "one")
        await asyncio.sleep(60)  # the scheduler tries the late one again and again
        assert (await world.scheduling("late")).status.waiting_for == "ClaimBeingDeleted"
        await is_used_by(world, "p")
        assert await world.node_of("other") == ""
        await world.delete_pod("p")
        await world.settle()
        assert not (await world.client.list(CLAIMS)).items
        assert await world.mirror("now") is None
        assert await world.node_of("other") == "a"

    play(scenario)


@pytest.mark.parametrize("allocated", [True, False])
def test_a_deleted_claim_without_pods_goes_at_once(play: Any, allocated: bool) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=int(allocated))
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        assert ((await world.claim("now")).status.allocation is not None) == allocated
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await nothing_is_left(world)

    play(scenario)


def test_a_claim_deleted_while_its_driver_allocates_leaves_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, trouble=slow(10))
        await shelves(world, behaviour, "a")
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(5)
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await nothing_is_left(world)
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_claim_that_was_forced_away_gives_its_device_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.client.patch(CLAIMS, "now", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_mirror_that_somebody_deletes_is_made_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "now", NAMESPACE)
        await world.settle()
        await is_free(world)
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await is_used_by(world, "p")

    play(scenario)


def test_pods_that_come_while_the_mirror_of_their_shared_claim_goes_get_the_next_one(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_class("common", shareable=True)
        for name, mode in (("now", "Immediate"), ("delayed", "")):
            await world.add_claim(name, "common", mode=mode)
            await world.settle()
            await world.add_pod("p", claims=[name])
            await world.add_pod("q", claims=[name])
            await world.client.delete(BUILTIN_CLAIMS, name, NAMESPACE)
            await world.settle(400)
            await is_used_by(world, "p", "q", claim=name)
            for pod in "pq":
                await world.delete_pod(pod)
            await world.settle()
            await world.client.delete(CLAIMS, name, NAMESPACE)
            await world.settle()
            await nothing_is_left(world)

    play(scenario)


def test_a_record_that_somebody_clears_is_written_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=2)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        before = (await world.claim("now")).status.allocation
        nothing = {"status": {"allocation": None, "driverName": None}}
        await world.client.patch(CLAIMS, "now", nothing, NAMESPACE, subresource="status")
        await world.settle()
        await is_free(world)
        assert (await world.claim("now")).status.allocation == before

    play(scenario)


@pytest.mark.parametrize("used", [True, False])
def test_a_restart_takes_nothing_back(play: Any, used: bool) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        if used:
            await world.add_pod("p", claims=["now"])
        await world.settle()
        version = world.server.resource_version
        await restart(world, [DeviceDriver()], after=20)
        await world.settle(400)
        written = world.server.resource_version - version
        assert written == (0 if used else 1), "a new leader changes the built-in claim that shows no allocation"
        await world.add_pod("other", "one")
        await world.add_pod("q", claims=["now"])
        await world.settle()
        assert (await world.scheduling("other")).status.waiting_for == "NothingViable"
        if used:
            await is_used_by(world, "p")
            await world.delete_pod("p")
            await world.settle()
        await is_used_by(world, "q")

    play(scenario)


def test_a_pod_that_ended_while_nobody_looked_frees_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        (task,) = world._tasks[-1:]
        world.killed.add(task)
        task.cancel()
        await world.delete_pod("p")
        await asyncio.sleep(20)
        world.start_parley()
        await world.settle()
        await is_free(world)

    play(scenario)
