"""Which pods are evicted for a pod's claims: as few as possible, and only where the class of the claims allows it.

Both sides are informed by events and messages.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.claim_preemption.preempting import begin, hold
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver

from parley.api.resources import CLASSES
from parley.control.caches.own_writes import OwnWrites
from parley.control.holding import Holding
from parley.drivers.device import DeviceDriver
from parley.scheduler.claim_victims import ClaimVictims
from parley.sdk import Allocation, Driver, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_of_four_holders_the_one_with_the_lowest_priority_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=2)
        await hold(world, three=3, one=1, two=2, four=4)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["one"]
        assert await world.node_of("urgent")

    play(scenario)


def test_the_victim_and_the_preemptor_are_told(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        note = (
            "Preempted by pod default/urgent on node a: it has a higher priority and gets what this pod's claims "
            "held"
        )
        assert await world.events_on("low") == [("Preempted", note)]
        status = (await world.scheduling("urgent")).status
        assert status.waiting_for == "Preempting"
        assert status.message == (
            "node a: pod default/low of lower priority evicted; what they hold there is kept for this pod"
        )
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.parametrize(
    ("preemption", "priority", "spec"),
    [
        ("LowerPriority", 1, {}),
        ("LowerPriority", 10, {"preemptionPolicy": "Never"}),
        ("Never", 10, {}),
        ("", 10, {}),
    ],
    ids=["equal priority", "the pod says Never", "the class says Never", "the class says nothing"],
)
def test_nobody_is_evicted(play: Play, preemption: str, priority: int, spec: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, preemption, a=1)
        await hold(world, low=1)
        await world.add_pod("waits", "one", priority=priority, **spec)
        await world.settle(700)
        assert evicted == []
        assert (await world.scheduling("waits")).status.waiting_for == "NothingViable"

    play(scenario)


def test_nobody_is_evicted_who_may_use_a_claim_that_is_gone_and_of_which_nobody_knows_what_its_class_says(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("spared", preemption="Never", shareable=True)
        await world.add_claim("disk", "spared")
        await world.add_pod("low", "one", claims=["disk"])
        await world.settle()
        assert await world.node_of("low") == "a"
        await world.crash()
        await world.force_away("disk")
        world.start_parley()
        await world.settle()
        await world.add_pod("also", "one")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(700)
        assert evicted == []
        await world.delete_pod("low")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert "also" in evicted

    play(scenario)


def test_nobody_is_evicted_where_the_pod_would_not_fit_all_the_same(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=1, lower=0)
        await world.taint("a", "maintenance", "NoSchedule")
        await world.taint("b", "maintenance", "NoSchedule")
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_claims_of_a_class_that_does_not_say_so_are_not_taken(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_class("kept")
        await world.add_template("mine", "kept")
        await world.add_pod("low", "mine")
        await world.settle()
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_nor_of_a_pod_that_waits_for_one_of_such_a_class_still(play: Play) -> None:
    """A standalone driver has yet to allocate it."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        never = asyncio.Event()

        async def wait(_: str) -> None:
            await never.wait()

        world.start_driver(ShelfDriver(Behaviour(other=5, trouble=wait)))
        await world.add_class("shelf")
        await world.client.patch(CLASSES, "shelf", {"driverName": ShelfDriver.name})
        await world.add_template("place", "shelf")
        await world.add_pod("low", "one", "place", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        await world.add_pod("waits", "one", priority=10)
        await world.settle(300)
        assert evicted == []

    play(scenario)


def test_a_pod_that_waits_hears_when_others_may_be_evicted_for_what_they_hold(play: Play) -> None:
    """The class of the claims that they hold decides; the pod's claims are of another class."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_class("kept")
        await world.add_template("mine", "kept")
        await world.add_pod("low", "mine")
        await world.settle()
        await world.add_pod("waits", "one", priority=10)
        await world.settle()
        assert evicted == []
        await world.client.patch(CLASSES, "kept", {"preemption": "LowerPriority"})
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("waits") == "a"

    play(scenario)


def test_as_few_as_possible_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=2)
        await world.add_pod("both", "two", priority=1)
        await world.settle()
        await hold(world, small=1, smaller=1)
        await world.add_pod("urgent", "two", priority=10)
        await world.settle()
        assert evicted == ["both"]
        assert await world.node_of("urgent") == await world.node_of("urgent") != ""

    play(scenario)


def test_a_recreated_victim_evicts_nobody(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.add_pod("again", "one", priority=1)
        await world.settle(700)
        assert evicted == ["low"]
        assert not await world.node_of("again")

    play(scenario)


class Silent(DeviceDriver):
    """Hands out devices, and cannot tell what would be viable if claims were free."""

    viable_without = Driver.viable_without


def test_for_claims_of_a_driver_that_cannot_tell_nobody_is_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.crash()
        world.start_parley(drivers=[Silent()])
        await hold(world, low=1)
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_what_victims_request_of_a_node_is_counted_as_free_and_a_pod_that_needs_more_evicts_nobody(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("other", nodeName="a", priority=20, containers=requesting(cpu=2))
        await world.add_pod("low", "one", containers=requesting(cpu=6))
        await world.settle()
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(300)
        assert evicted == []
        await world.add_pod("fits", "one", priority=10, containers=requesting(cpu=6))
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("fits") == "a"

    play(scenario)


def test_victims_are_looked_for_where_the_pod_could_be_alone(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    holder = ClaimVictims._holder

    def counted(victims: ClaimVictims, holding: Holding) -> Any:
        looks.append(holding.node)
        return holder(victims, holding)

    async def scenario(world: World) -> None:
        nodes = {f"n{number}": 2 for number in range(10)}
        evicted = await begin(world, "LowerPriority", None, None, **nodes)
        await hold(world, **{f"low-{number}": 1 for number in range(20)})
        monkeypatch.setattr(ClaimVictims, "_holder", counted)
        await world.add_pod("urgent", "one", priority=10, nodeSelector={"kubernetes.io/hostname": "n7"})
        await world.settle()
        assert len(evicted) == 1
        assert await world.node_of("urgent") == "n7"
        assert set(looks) == {"n7"}

    play(scenario)


def test_for_a_claim_that_is_about_to_be_given_back_nobody_is_evicted(play: Play) -> None:
    """Its last user ended while no controller ran: it can be allocated where something is free."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("for-several", shareable=True, preemption="LowerPriority")
        await world.add_claim("common", "for-several")
        await world.add_pod("last", claims=["common"])
        await hold(world, low=0)
        await world.add_node("b", 2)
        await world.crash()
        await world.finish_pod("last")
        await world.add_pod("urgent", "one", claims=["common"], priority=10)
        await world.settle()
        world.start_parley()
        await world.settle()
        assert evicted == []
        assert await world.node_of("urgent") == "b"

    play(scenario)


class ComesUpLate(DeviceDriver):
    """Takes devices for the pod `slow` at once, and is done with the allocation when `is_up` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = asyncio.Event()

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        allocated = await super().allocate(request, node)
        if request.pod.name == "slow":
            await self.is_up.wait()
        return allocated


@pytest.mark.parametrize("others", [{}, {"low": 0}])
def test_what_was_being_allocated_when_a_pod_was_looked_at_is_taken_once_it_is_there(
    play: Play, others: dict[str, int]
) -> None:
    async def scenario(world: World) -> None:
        driver = ComesUpLate()
        evicted = await begin(world, drivers=[driver], a=2)
        for name, priority in others.items():
            await world.add_pod(name, "one", priority=priority)
        await world.settle(2)
        await world.add_pod("slow", "one" if others else "two", priority=1)
        await asyncio.sleep(2)
        await world.add_pod("urgent", "two", priority=10)
        await asyncio.sleep(10)
        assert evicted == []

        driver.is_up.set()
        await world.settle(30)
        assert sorted(evicted) == sorted([*others, "slow"])
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("extender")
def test_nobody_is_evicted_before_all_of_a_pods_claims_are_seen_as_they_are(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that was just cleared, which the cache has yet to show, needs a device as well."""
    is_stale, behind = OwnWrites.is_stale, {"disk"}
    monkeypatch.setattr(OwnWrites, "is_stale", lambda self, meta: meta.name in behind or is_stale(self, meta))

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, high=20, low=0)
        await world.add_claim("disk")
        await asyncio.sleep(1)
        await world.add_pod("urgent", "one", claims=["disk"], priority=10)
        await asyncio.sleep(30)
        behind.clear()
        await world.change_pod("urgent")
        await world.settle(30)
        assert evicted == []

    play(scenario)
