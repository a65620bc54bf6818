"""Several pods preempt claims at once: each victim is evicted once, and pods of higher priority come first."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import SlowEvents, SlowEvictions, begin, hold

from parley.api.resources import CLASSES, NODES
from parley.drivers.device import DeviceDriver
from parley.sdk import Allocation, Request
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_a_pod_that_found_nobody_below_it_looks_again_though_one_before_it_preempts_nobody(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("never", "two", priority=1, preemptionPolicy="Never")
        await world.settle(5)
        await world.add_pod("waits", "two", priority=1)
        await world.settle(5)
        await hold(world, low=0)
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("waits") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_who_waits_behind_a_pod_that_evicts_nobody_for_a_while_does_not_wait_for_that(play: Play) -> None:
    """A pod of higher priority got the device for which the first one had another pod evicted."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        for node in ("a", "b"):
            await world.add_pod(f"low-{node}", "one", nodeSelector={"kubernetes.io/hostname": node})
        await world.settle(5)
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.add_pod("first", "one", priority=10, schedulerName="asleep")
        await world.settle(2)
        await world.add_pod("high", "one", priority=20)
        (mirror,) = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("first")]
        await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None})
        await world.add_pod("second", "one", priority=10)
        await world.settle(5)
        await world.client.patch(CLASSES, "gpu", {"allocationTimeoutSeconds": 100})
        await world.settle(5)
        assert await world.node_of("high") == "a"
        assert evicted == ["low-a"]
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await asyncio.sleep(5)
        assert evicted == ["low-a", "low-b"]
        await asyncio.sleep(15)
        assert await world.node_of("second") == "b"

    play(scenario)


def test_who_loses_its_node_to_a_higher_one_evicts_no_more_pods_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=SlowEvictions(world.server.client()), a=2)
        await hold(world, lowest=0, lower=1)
        await world.add_pod("needs-both", "two", priority=5)
        await asyncio.sleep(SlowEvictions.seconds * 2.5)  # asked what both evictions would do, and begun with one
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert await world.node_of("urgent") == "a"
        assert (await world.pod("lower")).metadata.deletion_timestamp is None
        assert await world.node_of("needs-both") == ""

    play(scenario)


def test_who_gets_a_node_beside_a_higher_one_does_not_take_what_that_waits_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=SlowEvents(world.server.client()), a=3)
        await hold(world, lowest=0)
        await world.add_pod("lower", "two", priority=3)
        await world.settle(5)
        world.kubelets.stop("a")
        await world.add_pod("second", "one", priority=2)
        await world.settle(60)  # "lowest" is on its way out for it
        await world.add_pod("first", "two", priority=10)
        await asyncio.sleep(1)  # "lower" is evicted, and the Event about it under way
        assert (await world.pod("lower")).metadata.deletion_timestamp
        await world.finish_pod("lower")
        await world.settle(60)
        assert [await world.node_of(name) for name in ("first", "second")] == ["a", ""]
        await world.finish_pod("lowest")
        await world.settle(60)
        assert await world.node_of("second") == "a"

    play(scenario)


def test_nobody_else_is_evicted_where_a_higher_one_has_taken_what_the_first_victim_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvents(world.server.client()), a=2)
        await hold(world, lowest=0, lower=1)
        await world.add_pod("needs-both", "two", priority=5)
        await asyncio.sleep(1)  # "lowest" is evicted, and the Event about it under way
        assert evicted == ["lowest"]
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert evicted == ["lowest"]
        assert [await world.node_of(name) for name in ("urgent", "needs-both")] == ["a", ""]

    play(scenario)


def test_nobody_else_is_evicted_where_enough_has_come_free_since_the_first_eviction(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvents(world.server.client()), a=3)
        await hold(world, equal=5, lowest=0, lower=1)
        world.kubelets.stop("a")
        await world.add_pod("needs-two", "two", priority=5)
        await asyncio.sleep(1)  # "lowest" is evicted, and the Event about it under way
        assert evicted == ["lowest"]
        await world.finish_pod("equal")
        await asyncio.sleep(30)
        assert evicted == ["lowest"]
        world.kubelets.start("a")
        await world.settle(60)
        assert await world.node_of("needs-two") == "a"
        assert await world.node_of("lower") == "a"

    play(scenario)


def test_two_preemptors_for_one_victim_evict_it_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        for name in ("urgent", "also"):
            await world.add_pod(name, "one", priority=10)
        await world.settle()
        world.kubelets.start("a")
        await world.settle(700)
        assert evicted == ["low"]
        assert {await world.node_of("urgent"), await world.node_of("also")} == {"a", ""}

    play(scenario)


def test_two_preemptors_get_a_victim_each_at_the_same_time(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=3)
        await hold(world, high=20, low=1, lower=0)
        world.kubelets.stop("a")
        for name in ("urgent", "also"):
            await world.add_pod(name, "one", priority=10)
        await world.settle()
        assert sorted(evicted) == ["low", "lower"]
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == await world.node_of("also") == "a"

    play(scenario)


def test_a_higher_one_that_comes_later_gets_it_and_the_first_takes_another(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.add_pod("higher", "one", priority=20)
        await world.settle(120)
        assert evicted == ["lower", "low"]
        world.kubelets.start("a")
        await world.settle(120)
        assert await world.node_of("urgent") == await world.node_of("higher") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_no_more_than_sixty_pods_are_evicted_within_a_minute(play: Play) -> None:
    """All victims of a plan count before the first is evicted: evicting only some of them would be in vain."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=31, b=31)
        await world.add_template("many", count=31)
        await hold(world, **{f"low-{number}": 0 for number in range(62)})
        for name in ("first", "second"):
            await world.add_pod(name, "many", priority=10)
        await asyncio.sleep(50)
        assert len(evicted) == 31
        await asyncio.sleep(60)
        assert len(evicted) == 62
        assert sorted([await world.node_of("first"), await world.node_of("second")]) == ["a", "b"]

    play(scenario)


class AllocatesSlowly(DeviceDriver):
    """Needs 20 s to allocate for the pod `first`."""

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        allocations = await super().allocate(request, node)
        await asyncio.sleep(20 if request.pod.name == "first" else 0)
        return allocations


@pytest.mark.scheduling_paths("extender")
def test_nobody_is_evicted_for_a_pod_while_its_named_claim_is_allocated_for_another(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, drivers=[AllocatesSlowly()], a=1, b=1)
        await world.add_claim("tape")
        await world.add_pod("low", "one", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(5)
        await world.add_pod("first", claims=["tape"], priority=1, schedulerName="default-scheduler")
        await asyncio.sleep(5)
        await world.add_pod("second", claims=["tape"], priority=2)
        await world.settle()
        assert [await world.node_of(name) for name in ("first", "second")] == ["a", ""]
        assert evicted == []
        await world.finish_pod("first")
        await world.settle()
        assert await world.node_of("second") == "a"

    play(scenario)


def test_a_pod_keeps_its_nomination_while_a_driver_allocates_for_another_one_on_the_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, drivers=[AllocatesSlowly()], a=3)
        await hold(world, low=0, lower=0, lowest=0)
        world.kubelets.stop("a")
        for name, template in (("first", "one"), ("second", "two")):
            await world.add_pod(name, template, priority=10)
            await world.settle(5)
        assert len(evicted) == 3
        for victim in evicted[:2]:
            await world.finish_pod(victim)
            await asyncio.sleep(5)
        await world.add_pod("third", "one", priority=10)
        await world.settle(5)
        await world.finish_pod(evicted[2])
        await world.settle()
        assert [await world.node_of(name) for name in ("first", "second", "third")] == ["a", "a", ""]

    play(scenario)
