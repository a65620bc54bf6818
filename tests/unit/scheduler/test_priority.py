"""Of pods that wait for the same, the one with the highest priority is served first, of equal ones the first."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import CLAIMS, PODS
from parley.kube.client import Call, Client

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

PRIORITIES = {"early": 0, "low": -5, "high": 1000, "late": 0, "higher": 2000}
IN_LINE = ["higher", "high", "early", "late", "low"]


async def served(world: World, waiting: set[str], holder: str) -> list[str]:
    """Whom what the holder has goes to, and so on, as each pod ends when it was served."""
    order: list[str] = []
    while waiting:
        await world.delete_pod(holder)
        await world.settle()
        found = [name for name in waiting if (await world.pod(name)).spec.node_name]
        assert len(found) == 1, (order, found)
        order += found
        waiting.discard(holder := found[0])
    return order


async def look_again(world: World, name: str) -> None:
    """Something of the pod changes that decisions depend on."""
    await world.client.patch(PODS, name, {"spec": {"tolerations": [{"key": "any"}]}}, "default")


async def one_device(world: World) -> None:
    await world.add_node("a")
    await world.publish("a", ["gpu-0"])
    await world.add_class()
    await world.add_template("one")


@pytest.mark.parametrize("restarts", [False, True], ids=["", "after a restart"])
def test_a_device_goes_to_the_highest_priority_first(play: Play, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        world.start_parley()
        await world.add_pod("holder", "one")
        await world.settle()
        for name, priority in PRIORITIES.items():
            await world.add_pod(name, "one", priority=priority)
            await world.settle(2)
        if restarts:
            await world.crash()
            world.start_parley()
            await world.settle()
        assert await served(world, set(PRIORITIES), "holder") == IN_LINE

    play(scenario)


def test_an_exclusive_named_claim_goes_to_the_highest_priority_first(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("mine")
        world.start_parley()
        await world.add_pod("holder", claims=["mine"])
        await world.settle()
        for name, priority in PRIORITIES.items():
            await world.add_pod(name, claims=["mine"], priority=priority)
            await world.settle(2)
        assert await served(world, set(PRIORITIES), "holder") == IN_LINE
        assert [claim.metadata.name for claim in (await world.client.list(CLAIMS)).items] == ["mine"]

    play(scenario)


def test_a_pod_that_is_looked_at_by_chance_does_not_overtake_one_that_was_woken(play: Play) -> None:
    """The report about the first in line is still being written when the device comes free."""

    async def scenario(world: World) -> None:
        await one_device(world)
        world.start_parley(SlowReports(world.server.client(), "high", 2.0))
        await world.add_pod("holder", "one")
        await world.settle()
        await world.add_pod("low", "one")
        await world.settle(5)
        await world.add_pod("high", "one", priority=5)
        await asyncio.sleep(1)
        await world.delete_pod("holder")
        await asyncio.sleep(0.1)
        await look_again(world, "low")
        await world.settle()
        assert [await world.node_of(name) for name in ("high", "low")] == ["a", ""]

    play(scenario)


@pytest.mark.parametrize("wanted", ["the same", "more"])
def test_nor_one_that_was_woken_by_a_limit_of_their_class(play: Play, wanted: str) -> None:
    """The report about the first in line is still being written when the namespace may hold more again."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=4)
        await world.add_class(limits=[{"units": 2}])
        await world.add_template("one", count=2 if wanted == "the same" else 1)
        await world.add_template("two", count=2)
        world.start_parley(SlowReports(world.server.client(), "high", 2.0))
        await world.add_pod("holder", "two")
        await world.settle()
        await world.add_pod("low", "one")
        await world.settle(5)
        await world.add_pod("high", "two", priority=5)
        await asyncio.sleep(1)
        await world.delete_pod("holder")
        await asyncio.sleep(0.1)
        await look_again(world, "low")
        await world.settle()
        assert [await world.node_of(name) for name in ("high", "low")] == ["a", ""]

    play(scenario)


@pytest.mark.parametrize("between", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_nor_does_one_overtake_another_that_gave_way_to_it(play: Play, between: float) -> None:
    """Two devices come free, and the first in line is still being reported about, when others come: it gets one,
    and the highest of the others the second."""

    async def scenario(world: World) -> None:
        await one_device(world)
        await world.publish("a", ["gpu-0", "gpu-1"])
        world.start_parley(SlowReports(world.server.client(), "higher", 2.0))
        for name in ("holder", "other"):
            await world.add_pod(name, "one")
        await world.settle()
        await world.add_pod("higher", "one", priority=9)
        await asyncio.sleep(1)
        await world.delete_pod("holder")
        await world.delete_pod("other")
        await asyncio.sleep(0.1)
        await world.add_pod("low", "one")
        await asyncio.sleep(between)
        await world.add_pod("high", "one", priority=5)
        await world.settle()
        assert [await world.node_of(name) for name in ("higher", "high", "low")] == ["a", "a", ""]

    play(scenario)


@pytest.mark.parametrize("number", range(1, 9))
def test_the_oldest_in_the_work_queue_is_looked_at_early_and_served_in_turn(play: Play, number: int) -> None:
    """All of them wait when a controller begins: by their age, and of equals by name. One in four is taken from
    the queue by its age."""

    async def scenario(world: World) -> None:
        await one_device(world)
        await world.publish("a", [])
        world.start_parley()
        above = [f"high-{i}" for i in range(number)]
        for name in ("a-low", *above):
            await world.add_pod(name, "one", priority=1 if name in above else 0)
        await world.settle()
        await world.crash()
        await world.publish("a", [f"gpu-{i}" for i in range(number)])
        world.start_parley()
        await world.settle()
        assert [await world.node_of(name) for name in (*above, "a-low")] == [*["a"] * number, ""]

    play(scenario)


class SlowReports(Client):
    """Events about the pod take so long to be written."""

    def __init__(self, client: Client, pod: str, seconds: float) -> None:
        super().__init__(client)
        self._pod = pod
        self._seconds = seconds

    async def request(self, call: Call) -> bytes:
        if call.resource.kind == "Event" and call.body["regarding"]["name"] == self._pod:
            await asyncio.sleep(self._seconds)
        return await super().request(call)
