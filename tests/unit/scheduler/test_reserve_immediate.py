"""Immediate claims reserve room, and are told when there is room for what they reserve."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api import reasons
from parley.api.resources import CLAIMS, PODS

Play = Callable[[Callable[[World], Any]], None]


pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_a_claim_without_a_pod_reserves_room_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        for name in ("one", "two", "three"):
            await claim(world, name, {"cpu": "6"}, "Immediate")
        await world.settle()
        found = [await world.claim(name) for name in ("one", "two", "three")]
        assert sum(one.status.allocation is not None for one in found) == 2
        (waits,) = (one for one in found if one.status.allocation is None)
        (told,) = (c.message for c in waits.status.conditions if c.type == reasons.ALLOCATED)
        assert f"too little cpu left to reserve 6 cpu for claim default/{waits.metadata.name}" in told
        (first, *_) = (one for one in found if one.status.allocation is not None)
        await world.client.delete(CLAIMS, first.metadata.name, NAMESPACE)
        await asyncio.sleep(20)
        assert (await world.claim(waits.metadata.name)).status.allocation is not None

    play(scenario)


async def waits_beside_a_pod(world: World) -> None:
    """The claim "build" can't reserve what it asks for as long as the pod "plain" is there."""
    await begin(world, "a")
    await world.add_pod("plain", containers=requesting(cpu="5"))
    await world.settle()
    await claim(world, "build", {"cpu": "4"}, "Immediate")
    await world.settle()
    assert (await world.claim("build")).status.allocation is None


@pytest.mark.parametrize("end", ["delete_pod", "finish_pod"])
def test_a_claim_without_a_pod_hears_of_a_pod_that_ends(play: Play, end: str) -> None:
    async def scenario(world: World) -> None:
        await waits_beside_a_pod(world)
        await getattr(world, end)("plain")
        await world.settle()
        assert (await world.claim("build")).status.allocation is not None

    play(scenario)


def test_a_claim_without_a_pod_hears_of_a_pod_that_is_resized(play: Play) -> None:
    async def scenario(world: World) -> None:
        await waits_beside_a_pod(world)
        await world.client.patch(PODS, "plain", {"spec": {"containers": requesting(cpu="2")}}, NAMESPACE)
        await world.settle()
        assert (await world.claim("build")).status.allocation is not None

    play(scenario)


def test_a_claim_without_a_pod_hears_of_room_behind_many_others_that_wait_for_more(play: Play) -> None:
    """Where many claims reserve, not all of them are asked whether a change helps them."""

    async def scenario(world: World) -> None:
        await begin(world, "a")
        for name, cpu in (("stays", "4500m"), ("ends", "2")):
            await task(world, name, cpu=cpu, nodeName="a", schedulerName="")
        for i in range(100):
            await claim(world, f"tiny-{i}", {"cpu": "1m"}, "Immediate")
        for i in range(25):
            await claim(world, f"large-{i}", {"cpu": f"{6000 + i}m"}, "Immediate")
        await claim(world, "small", {"cpu": "2"}, "Immediate")
        await world.settle()
        assert (await world.claim("small")).status.allocation is None
        await world.delete_pod("ends")
        await asyncio.sleep(90)
        assert (await world.claim("small")).status.allocation is not None

    play(scenario)
