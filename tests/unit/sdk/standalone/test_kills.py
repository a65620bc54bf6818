"""The driver's process is killed at every write of a scenario, before and after the API server did it.

It is started again. What it had in memory is lost; what it did outside stays. Always everything ends as without
the kill, and the driver holds exactly what the claims record.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.sdk.standalone.world import Array, ArrayDriver, ShelfDriver, World

from parley.kube.faults import Call, FaultClient
from parley.sdk import Driver

Play = Callable[[Callable[[World], Any]], None]


class Killed(BaseException):
    """The process is gone: no further call leaves it."""


class Executioner:
    """Kills the driver at its n-th write and has a new one started, as Kubernetes would. 0 is never."""

    def __init__(self, world: World, make: Callable[[], Driver[Any, Any]], write: int, *, after: bool) -> None:
        self.world = world
        self.make = make
        self.write = write
        self.after = after
        self.died = False
        self.driver = make()
        self.client = FaultClient(world.server.client(), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        if self.write and call.write and call.write + (not self.after) > self.write:
            raise Killed

    def _after(self, call: Call) -> None:
        if self.write and self.after and call.write == self.write:
            raise Killed

    async def run(self) -> None:
        task = self.world.start(self.driver, self.client)
        self.world.killed.add(task)
        await asyncio.wait([task])
        self.died = True
        self.driver = self.make()
        self.world.start(self.driver)


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


async def killed_at(world: World, slow: bool, write: int, *, after: bool) -> int:
    array = Array(dict.fromkeys("abc", 4))
    executioner = Executioner(world, lambda: ArrayDriver(array) if slow else ShelfDriver(), write, after=after)

    def held() -> dict[str, str]:
        driver = executioner.driver
        there = driver.held if isinstance(driver, ShelfDriver) else array.volumes
        return {uid: node for uid, (node, _) in there.items()}

    running = asyncio.create_task(executioner.run())
    await story(world, array)
    await check(world, held)
    running.cancel()
    assert executioner.died == bool(write)
    assert array.faults == []
    return executioner.client.writes


@pytest.mark.parametrize("slow", [False, True], ids=["in-memory", "outside"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, after: bool, slow: bool) -> None:
    counted: list[int] = []

    async def undisturbed(world: World) -> None:
        counted.append(await killed_at(world, slow, 0, after=after))

    play(undisturbed)
    assert counted[0] > 15
    for write in range(1, counted[0] + 1):

        async def scenario(world: World, write: int = write) -> None:
            try:
                await killed_at(world, slow, write, after=after)
            except BaseException as error:
                moment = "after" if after else "before"
                raise AssertionError(f"killed {moment} write {write} of {counted[0]}") from error

        play(scenario)
