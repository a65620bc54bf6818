"""What victims release, and named claims, are kept for the pod for which pods were evicted; and for how long."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import begin, hold

from parley.api.builtin import BuiltinClaim
from parley.api.resources import CLAIMS
from parley.control.nominations import KEPT_SECONDS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.drivers.device import DeviceDriver
from parley.sdk import Allocation, Request
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_what_a_victim_gives_up_is_kept_for_the_preemptor(play: Play) -> None:
    """The pod `patient` has the same priority and arrived before the preemptor, but may not preempt."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.add_pod("patient", "one", priority=10, preemptionPolicy="Never")
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["lower"]
        await world.add_pod("late", "one", priority=5, preemptionPolicy="Never")
        await world.settle()
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert evicted == ["lower"]
        assert not await world.node_of("patient")
        assert not await world.node_of("late")
        await world.delete_pod("low")
        await world.settle()
        # The second scheduler asks about both by itself, about one of them before the device is released.
        assert await world.node_of("patient") == "a" or world.scheduling_path == "extender"

    play(scenario)


def test_what_a_preemptor_gives_back_claim_by_claim_is_kept_for_it(play: Play) -> None:
    """Its scheduler reserved its claims, could not bind it, and removes the reservations."""

    async def mine(world: World) -> list[BuiltinClaim]:
        return [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("urgent-")]

    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1, lower=0)
        await world.add_pod("urgent", "offered", "offered", priority=10, schedulerName="asleep")
        await world.settle(5)
        await world.add_pod("equal", "one", priority=10)
        await world.settle(5)
        for users in ([consumer(reference(await world.pod("urgent")))], []):
            for mirror in await mine(world):
                await patch_claim(world.client, mirror, {"reservedFor": users})
            await world.settle(1)
            assert sum((await world.devices()).values()) == (2 if users else 0)
        await world.settle(60)
        assert not await world.node_of("equal")

    play(scenario)


def test_a_controller_that_is_restarted_evicts_nobody_else_while_the_victim_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle(120)
        assert evicted == ["lower"]
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert evicted == ["lower"]

    play(scenario)


def test_a_preemptor_that_is_deleted_leaves_what_was_kept_for_it_to_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.add_pod("next", "one", priority=0)
        await world.settle()
        await world.delete_pod("urgent")
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("next") == "a"

    play(scenario)


def test_after_ten_minutes_a_victim_that_does_not_end_is_not_waited_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=1, lower=0)
        stuck = await world.node_of("lower")
        world.kubelets.stop(stuck)
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(KEPT_SECONDS - 5)
        assert evicted == ["lower"]
        await asyncio.sleep(10)
        assert evicted == ["lower", "low"]
        assert await world.node_of("urgent") == ({"a", "b"} - {stuck}).pop()

    play(scenario)


async def contend_for_the_disk(world: World, evicted: list[str], scheduler: str) -> None:
    """A pod for which another one is evicted uses the claim `disk`, and then a pod of lower priority does."""
    world.kubelets.stop("a")
    await world.add_pod("urgent", "one", claims=["disk"], priority=10)
    await world.settle(5)
    assert evicted == ["low"]
    await world.add_pod("late", claims=["disk"], priority=5, schedulerName=scheduler)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "parley"])
@pytest.mark.parametrize("deleted", [False, True], ids=["it gets both", "it is deleted"])
def test_a_free_named_claim_is_kept_for_the_preemptor_too(play: Play, deleted: bool, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=1)
        await world.add_claim("disk")
        await world.add_pod("low", "two")
        await world.settle(5)
        await contend_for_the_disk(world, evicted, scheduler)
        await world.settle(5)
        assert not await world.node_of("late")
        if deleted:
            await world.delete_pod("urgent")
        world.kubelets.start("a")
        await world.settle(60)
        assert bool(await world.node_of("late")) is deleted
        assert deleted or await world.node_of("urgent") == "a"

    play(scenario)


def test_nothing_is_kept_for_a_pod_one_of_whose_named_claims_is_deleted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=3)
        await hold(world, low=1)
        await world.add_claim("disk")
        await world.add_claim("tape", mode="Immediate")
        world.kubelets.stop("a")
        await world.settle(5)
        await world.add_pod("urgent", "one", claims=["disk", "tape"], priority=10)
        await world.settle(5)
        assert evicted == ["low"]
        await world.add_pod("late", claims=["tape"], priority=5)
        await world.settle(5)
        assert not await world.node_of("late")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(5)
        assert await world.node_of("late") == "a"

    play(scenario)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "parley"])
def test_a_claim_without_users_is_kept_until_the_preemptor_is_gone_and_the_next_pod_hears_of_it(
    play: Play, scheduler: str
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=0)
        await world.add_claim("disk", mode="Immediate")
        await world.settle(5)
        await contend_for_the_disk(world, evicted, scheduler)
        await world.settle(60)
        assert not await world.node_of("late")
        await world.delete_pod("urgent")
        await world.settle(5)
        assert await world.node_of("late") == "a"

    play(scenario)


def test_what_was_offered_before_is_kept_for_the_preemptor_too(play: Play) -> None:
    """A scheduler chooses a node that was offered before others were evicted there for another pod."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1)
        await world.add_pod("slow", "offered", priority=5, schedulerName="asleep")
        await world.settle(2)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(2)
        assert evicted == ["low"]
        mirrors = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("slow")]
        users = {"reservedFor": [consumer(reference(await world.pod("slow")))]}
        await patch_claim(world.client, mirrors[0], users)
        await world.settle(2)
        world.kubelets.start("a")
        await world.settle(30)
        assert await world.node_of("urgent") == "a"
        assert sum((await world.devices()).values()) == 2

    play(scenario)


def test_what_others_give_up_stays_the_preemptors_when_its_driver_fails_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a scheduler chose the node: the driver failed, the scheduler did not refuse it."""
    jams = ["jammed"]
    allocate = DeviceDriver.allocate

    async def jamming(driver: Any, request: Any, node: str) -> Any:
        if len(request.claims) == 2 and jams:
            raise RuntimeError(jams.pop())
        return await allocate(driver, request, node)

    monkeypatch.setattr(DeviceDriver, "allocate", jamming)

    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "offered", "offered", priority=10)
        await world.settle(5)
        await world.add_pod("late", "one", priority=5)
        await world.settle(5)
        world.kubelets.start("a")
        await world.settle(60)
        assert not jams
        assert await world.node_of("urgent") == "a"
        assert not await world.node_of("late")
        told = [reason for reason, _ in await world.events_on("urgent")]
        assert sorted(told) == ["AllocationFailed", "Preempting"]

    play(scenario)


def test_a_named_claim_goes_to_the_pod_that_others_were_evicted_for_not_to_its_equal(play: Play) -> None:
    """The first pod may not preempt, so it does not wait for a device that another pod holds."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=0)
        await world.add_pod("first", claims=["disk"], priority=5, preemptionPolicy="Never")
        await world.settle(2)
        await world.add_pod("second", claims=["disk"], priority=5)
        await world.settle(2)
        await world.add_claim("disk")
        await world.settle()
        assert evicted == ["low"]
        assert [await world.node_of(name) for name in ("first", "second")] == ["", "a"]

    play(scenario)


class TakesItsTime(DeviceDriver):
    """Begins to allocate for the pods in `held_up` only when their events are set."""

    def __init__(self) -> None:
        super().__init__()
        self.held_up = {"slow": asyncio.Event(), "urgent": asyncio.Event()}

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if (gate := self.held_up.get(request.pod.name)) is not None:
            await gate.wait()
        return await super().allocate(request, node)


@pytest.mark.scheduling_paths("native")
def test_what_was_kept_since_a_slow_driver_began_to_allocate_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = TakesItsTime()
        evicted = await begin(world, drivers=[driver], a=1)
        for name, priority in (("slow", 0), ("quick", 1), ("urgent", 10)):
            await world.add_pod(name, "one", priority=priority)
            await asyncio.sleep(4)
        assert evicted == ["quick"]

        driver.held_up["slow"].set()
        await asyncio.sleep(5)
        assert await world.node_of("slow") == ""
        driver.held_up["urgent"].set()
        await world.settle(60)
        assert await world.node_of("urgent") == "a"

    play(scenario)
