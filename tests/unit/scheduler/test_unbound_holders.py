"""A pod that has all its claims and is not bound holds up nobody of higher priority for longer than a minute where
classes let claims be taken; it is not deleted for that."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import PODS
from parley.scheduler.attempts import BOUND_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, preemption: str = "LowerPriority") -> None:
    """The pod `unplaced` has the only device of node `a`, and no scheduler; `running` has that of `b`."""
    await world.add_class(preemption=preemption)
    await world.add_template()
    await world.add_node("a", devices=1)
    world.start_parley()
    await world.settle(2)
    await world.add_pod("unplaced", "one", priority=1, schedulerName="nobody")
    await world.settle(2)
    assert await world.devices() == {("a", "gpu-0"): 1}
    await world.add_node("b", devices=1)
    await world.add_pod("running", "one", priority=2)
    await world.settle(2)
    assert await world.node_of("running") == "b"


async def seconds_until_bound(world: World, name: str) -> int:
    for seconds in range(1000):
        if await world.node_of(name):
            return seconds
        await asyncio.sleep(1)
    raise AssertionError("never bound")


def test_it_gives_up_its_claims_when_it_should_have_been_bound(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await asyncio.sleep(BOUND_SECONDS)
        await world.add_pod("urgent", "one", priority=10)
        assert await seconds_until_bound(world, "urgent") < 10
        assert await world.node_of("urgent") == "a"
        await world.settle()
        assert not (await world.pod("unplaced")).metadata.deletion_timestamp
        assert (await world.scheduling("unplaced")).status.waiting_for == "NothingViable"

    play(scenario)


def test_before_that_it_keeps_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("urgent", "one", priority=10)
        assert BOUND_SECONDS - 10 < await seconds_until_bound(world, "urgent") < BOUND_SECONDS + 5

    play(scenario)


@pytest.mark.parametrize(("preemption", "priority"), [("Never", 10), ("LowerPriority", 1)])
def test_nobody_else_makes_it_give_them_up(play: Play, preemption: str, priority: int) -> None:
    async def scenario(world: World) -> None:
        await begin(world, preemption)
        await asyncio.sleep(BOUND_SECONDS)
        await world.add_pod("other", "one", priority=priority)
        assert await seconds_until_bound(world, "other") > 2 * BOUND_SECONDS

    play(scenario)


async def delete_with_finalizer(world: World) -> None:
    """Delete `unplaced`, whose object stays for a finalizer, such as that of each pod of a Job."""
    finalizers = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    await world.client.patch(PODS, "unplaced", finalizers, "default")
    await world.delete_pod("unplaced")
    assert (await world.pod("unplaced")).metadata.deletion_timestamp


@pytest.mark.parametrize("named", [False, True], ids=["generated", "named"])
def test_it_gives_up_its_claims_when_it_is_deleted_though_a_finalizer_keeps_it(play: Play, named: bool) -> None:
    """The API server binds no pod that is being deleted."""

    async def scenario(world: World) -> None:
        await begin(world, "Never")
        if named:
            await world.delete_pod("unplaced")
            await world.add_claim("disk")
            await world.add_pod("unplaced", claims=["disk"], priority=1, schedulerName="nobody")
            await world.settle(2)
        await delete_with_finalizer(world)
        await world.settle(2)
        await world.add_pod("next", "one")
        await world.settle(60)
        assert await world.node_of("next") == "a"

    play(scenario)


def test_a_new_leader_leaves_what_it_gave_up_to_the_next_pod(play: Play) -> None:
    """The generated claim still shows the allocation."""

    async def scenario(world: World) -> None:
        await begin(world, "Never")
        await world.add_pod("next", "one")
        await world.settle(2)
        await world.stop_claim_controller()
        await delete_with_finalizer(world)
        await world.settle(5)
        assert await world.node_of("next") == "a"
        await world.crash()
        world.start_parley()
        world.start_claim_controller()
        await world.add_pod("late", "one")
        await world.settle(60)
        await world.client.patch(PODS, "unplaced", {"metadata": {"finalizers": None}}, "default")
        await world.settle(60)
        assert await world.node_of("late") == ""
        assert await world.devices() == {("a", "gpu-0"): 1, ("b", "gpu-0"): 1}

    play(scenario)
