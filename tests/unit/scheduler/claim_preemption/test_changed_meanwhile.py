"""What changes after the first eviction for a pod: nobody is evicted for whom the reason is gone, nor in vain."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import SlowEvents, begin, hold

from parley.api.resources import BUILTIN_CLAIMS, CLASSES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


async def preempt(world: World, wanted: str, second: str = "one") -> list[str]:
    """Three pods hold a device each, the `second` by this template. The first is evicted for a pod that wants
    more, and the Event about it is under way. Returns the names of the pods that are deleted."""
    evicted = await begin(world, client=SlowEvents(world.server.client()), a=3)
    await world.add_class("other", preemption="LowerPriority")
    await world.add_template("of-other", "other")
    await world.add_template("three", count=3)
    await hold(world, first=0)
    await world.add_pod("second", second, priority=1)
    await world.settle(5)
    await hold(world, third=2)
    await world.add_pod("urgent", wanted, priority=10)
    await asyncio.sleep(1)
    assert evicted == ["first"]
    return evicted


def test_a_victim_that_ends_by_itself_is_not_evicted(play: Play) -> None:
    """Its object is needed: somebody may read its log, or its exit status."""

    async def scenario(world: World) -> None:
        evicted = await preempt(world, "three")
        await world.finish_pod("second")
        await world.settle(100)
        assert evicted == ["first", "third"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_a_victim_whose_class_protects_it_by_now_is_not_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await preempt(world, "two", "of-other")
        await world.client.patch(CLASSES, "other", {"preemption": "Never"})
        await world.settle(100)
        assert evicted == ["first", "third"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_nobody_else_is_evicted_once_the_class_of_the_preemptor_does_not_allow_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvents(world.server.client()), a=2)
        await world.add_class("other", preemption="LowerPriority")
        await world.add_template("two-of-other", "other", count=2)
        await hold(world, first=0, second=1)
        await world.add_pod("urgent", "two-of-other", priority=10)
        await asyncio.sleep(1)
        assert evicted == ["first"]
        await world.client.patch(CLASSES, "other", {"preemption": "Never"})
        await world.settle(100)
        assert evicted == ["first"]

    play(scenario)


@pytest.mark.parametrize("lost", ["disk", "urgent"])
def test_a_preemptor_keeps_its_nomination_while_one_of_its_claims_is_recreated(play: Play, lost: str) -> None:
    """Somebody deletes the built-in claim. What is kept must not go to a pod that would be evicted in turn."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=3)
        await world.add_claim("disk")
        await world.add_pod("low", "two", priority=0)
        await world.settle(5)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "two", claims=["disk"], priority=10)
        await world.settle(5)
        await world.add_pod("late", "one", priority=5)
        await world.settle(5)
        assert evicted == ["low"]
        mirror = next(one for one in await world.mirrors() if one.metadata.name.startswith(lost))
        await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
        await world.settle(5)
        assert await world.node_of("late") == ""
        await world.change_pod("urgent")  # before that Kubernetes may generate no other claim
        world.kubelets.start("a")
        await world.settle(100)
        assert await world.node_of("urgent") == "a"
        assert evicted == ["low"]

    play(scenario)
