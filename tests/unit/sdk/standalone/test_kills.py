"""The driver's process is killed at every write of a scenario, before and after the API server did it.

It is started again. What it had in memory is lost; what it did outside stays. Always everything ends as without
the kill, and the driver holds exactly what the claims record.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.sdk.standalone.world import Array, ArrayDriver, ShelfDriver, World

from parley.kube.client import Client
from parley.sdk import Driver

Play = Callable[[Callable[[World], Any]], None]


async def story(world: World, array: Array) -> None:
    """Two claims for one pod, a failure and another node, one that is given up, an immediate claim."""
    for node in ("a", "b", "c"):
        await world.add_node(node, 4)
    await world.add_class()
    for claim in ("one", "two", "given-up"):
        await world.add_claim(claim)
    await world.ask("pod", "one", "two", nodes=["a", "b"])
    await world.settle()
    array.broken["a"] = RuntimeError("read-only")
    await world.select("pod", "a")
    await world.settle()
    if not await world.node_of("one"):
        await world.ask("pod", "one", "two", nodes=["b"], round=2)
        await world.settle()
        await world.select("pod", "b")
        await world.settle()
    await world.ask("other", "given-up", nodes=["c"], selected="c")
    await asyncio.sleep(10)
    await world.end("other")
    await world.settle()
    await world.add_claim("now", mode="Immediate")
    await world.settle()


async def check(world: World, held: Callable[[], dict[str, str]]) -> None:
    assert await world.node_of("one") == await world.node_of("two") != ""
    assert await world.node_of("now") != ""
    assert held() == await world.recorded()
    await world.end("pod")
    for claim in ("one", "two"):
        await world.take_back(claim)
    await world.settle()
    assert held() == await world.recorded()
    assert (await world.claim("one")).metadata.finalizers == ()
    for claim in ("one", "two", "now", "given-up"):
        if await world.exists(claim):
            await world.delete(claim)
    await world.settle()
    for claim in ("one", "two", "now", "given-up"):
        assert not await world.exists(claim)
    assert held() == {}


@pytest.mark.parametrize("slow", [False, True], ids=["in-memory", "outside"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, after: bool, slow: bool) -> None:
    async def life(world: World, death: Death) -> int:
        array = Array(dict.fromkeys("abc", 4))
        running: list[Driver[Any, Any]] = []

        def start(client: Client | None) -> asyncio.Task[None]:
            running.append(ArrayDriver(array) if slow else ShelfDriver())
            return world.start(running[-1], client)

        def held() -> dict[str, str]:
            driver = running[-1]
            there = driver.held if isinstance(driver, ShelfDriver) else array.volumes
            return {uid: node for uid, (node, _) in there.items()}

        async with Executioner(world, start, death) as executioner:
            await story(world, array)
            await check(world, held)
        assert array.faults == []
        return executioner.writes

    at_every_write(play, life, after=after, at_least=16)
