"""A pod that has all its claims and is not bound holds up nobody of higher priority for longer than a minute where
classes let claims be taken; it is not deleted for that."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

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
