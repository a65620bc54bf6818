"""Pods whose parameters are in an object keep their turn while it is read again, and what is kept for them."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, Scenario, World
from tests.unit.scheduler.references import put_size

from parley.api.resources import CONFIG_MAPS, TEMPLATES
from parley.kube.client import Call, Client
from parley.scheduler.pods import TURN_SECONDS

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Scenario], None]


async def begin(world: World, **class_: str) -> None:
    """A device, and templates that ask for one: `one` says so itself, `referring` by a ConfigMap."""
    await world.add_node("a", devices=1)
    await world.add_class(**class_)
    await world.add_template("one")
    reference = {"apiGroup": "", "kind": "ConfigMap", "name": "size"}
    spec = {"resourceClassName": "gpu", "parametersRef": reference}
    await world.create(
        TEMPLATES, {"metadata": {"name": "referring", "namespace": NAMESPACE}, "spec": {"spec": spec}}
    )
    await put_size(world, "count: 1")
    world.start_parley()
    await world.settle(5)


async def two_wait(world: World) -> None:
    """For what a third one holds: the first by its priority refers to its parameters."""
    await begin(world)
    await world.add_pod("holder", "one")
    await world.settle(5)
    await world.add_pod("first", "referring", priority=10)
    await world.settle(5)
    await world.add_pod("second", "one", priority=5)


# a scheduler with an extender serves another pod while one's parameters are read
@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("seconds", [10, 300])
def test_a_pod_is_served_before_those_of_lower_priority_however_long_it_waited(play: Play, seconds: float) -> None:
    async def scenario(world: World) -> None:
        await two_wait(world)
        await asyncio.sleep(seconds)
        await world.finish_pod("holder")
        await world.settle()
        assert [await world.node_of(name) for name in ("first", "second")] == ["a", ""]

    play(scenario)


@pytest.mark.parametrize("seconds", [10, 70, 300])
def test_what_evicted_pods_leave_is_kept_however_long_they_take(play: Play, seconds: float) -> None:
    async def scenario(world: World) -> None:
        await begin(world, preemption="LowerPriority")
        await world.add_pod("holder", "one", priority=1)
        await world.settle(5)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "referring", priority=10)
        await world.settle(5)
        assert (await world.pod("holder")).metadata.deletion_timestamp
        await world.add_pod("waits", "one", priority=5)
        await asyncio.sleep(seconds)
        world.kubelets.start("a")
        await world.settle()
        assert [await world.node_of(name) for name in ("urgent", "waits")] == ["a", ""]

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_whose_parameters_can_not_be_read_keeps_others_waiting_for_a_moment_only(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_wait(world)
        await asyncio.sleep(300)
        await world.crash()
        world.start_parley(Silent(world.server.client()))
        await asyncio.sleep(1)
        await world.finish_pod("holder")
        await asyncio.sleep(TURN_SECONDS + 1)
        assert [await world.node_of(name) for name in ("first", "second")] == ["", "a"]

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_pods_whose_parameters_are_never_read_can_not_stop_others_by_coming_all_the_time(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.crash()
        world.start_parley(Silent(world.server.client()))
        await world.add_pod("first", "referring")
        await asyncio.sleep(0.1)
        await world.add_pod("second", "one")
        came = asyncio.get_running_loop().time()
        for i in range(10):
            await asyncio.sleep(TURN_SECONDS / 2)
            await world.add_pod(f"more-{i}", "referring")
            if await world.node_of("second"):
                break
        assert asyncio.get_running_loop().time() - came <= 2.5 * TURN_SECONDS

    play(scenario)


class Silent(Client):
    """ConfigMaps are never answered."""

    async def request(self, call: Call) -> bytes:
        if call.resource == CONFIG_MAPS:
            await asyncio.Event().wait()
        return await super().request(call)
