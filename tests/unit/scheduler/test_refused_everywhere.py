"""Pods whose scheduler refused every viable node: they go to another node as soon as that is viable."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.effort import calls
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.test_left_in_peace import Asked, looks

from parley.control.claims.podclaims import NODES

Play = Callable[[Any], None]

LONG = 1000.0
"""By then a pod that is refused again and again pauses for minutes."""

PODS = 60


async def refused(world: Any, pods: int = 1) -> Asked:
    """Pods p0, p1, ... for which node a alone has devices, and which their scheduler refuses there."""
    driver = Asked()
    await world.add_node("a", devices=pods)
    await world.add_node("b")
    await add_grump(world, "a")
    await world.add_class()
    await world.add_template()
    world.start_parley(drivers=[driver])
    for number in range(pods):
        await world.add_pod(f"p{number}", "one", affinity=APART)
    await asyncio.sleep(LONG)
    assert (await world.scheduling("p0")).status.waiting_for == "SchedulerRefused"
    return driver


def test_a_device_that_comes_elsewhere_is_theirs_at_once(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await refused(world)
        await world.publish("b", ["gpu-0"])
        await asyncio.sleep(5)
        assert await world.node_of("p0") == "b"

    play(scenario)


def test_of_many_the_first_gets_a_device_that_comes_and_few_are_evaluated(play: Play) -> None:
    async def scenario(world: Any) -> None:
        driver = await refused(world, PODS)
        before = driver.count.total()
        await world.publish("b", ["gpu-0"])
        await asyncio.sleep(15)
        assert driver.count.total() - before < 10
        assert [name for name in map("p{}".format, range(PODS)) if await world.node_of(name)] == ["p0"]

    play(scenario)


def test_all_get_devices_that_come_at_once(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await refused(world, 10)
        await world.add_node("c")
        await world.publish("b", [f"gpu-{number}" for number in range(10)])
        await asyncio.sleep(60)
        assert [await world.node_of(f"p{number}") for number in range(10)] == ["b"] * 10

    play(scenario)


def test_pods_that_end_have_few_of_them_evaluated(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: Any) -> None:
        await refused(world, PODS)
        found: Counter[str] = looks(monkeypatch)
        for number in range(20):
            await world.add_pod(f"short-{number}", nodeName="b")
            await asyncio.sleep(0.1)
            await world.force_delete(f"short-{number}")
        assert max(found[f"p{number}"] for number in range(PODS)) <= 5
        await world.force_delete("grump-a")
        await asyncio.sleep(60 + 15)
        assert {await world.node_of(f"p{number}") for number in range(PODS)} == {"a"}

    play(scenario)


def test_what_pods_that_end_cost_does_not_grow_with_the_pods_that_are_refused(play: Play) -> None:
    """A tenant may have thousands. A change of nodes shortens the present pause of each, further ones do not."""

    async def scenario(world: Any) -> None:
        await refused(world, PODS)
        pods = world.controller._parts.reconciler._pods
        first = calls(lambda: pods.wake(NODES, ("b",)))
        assert first > 10 * PODS
        assert calls(lambda: pods.wake(NODES, ("b",))) < first / 10

    play(scenario)
