"""The controller is killed at every write of a scenario at the extender door, before and after the server did it.

The scheduler hears that the connection broke, and asks the next controller. Always every pod that can run ends up
bound once, every claim allocated once, no device held twice at any moment, and nothing left over at the end.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import CLAIMS
from parley.kube.faults import Call, FaultClient

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Killed(BaseException):
    """The process is gone: no further call leaves it."""


class Executioner:
    """Kills the controller at its n-th write and has a new one started, as Kubernetes would."""

    def __init__(self, world: World, write: int, *, after: bool) -> None:
        self.world = world
        self.write = write
        self.after = after
        self.died = False
        self.client = FaultClient(world.server.client(), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        if self.write and call.write and call.write + (not self.after) > self.write:
            raise Killed

    def _after(self, call: Call) -> None:
        if self.write and self.after and call.write == self.write:
            raise Killed

    async def run(self) -> None:
        task = self.world.start_parley(self.client)
        self.world.killed.add(task)
        await asyncio.wait([task])
        self.died = True
        self.world.start_parley()


async def story(world: World) -> None:
    """Two claims for one pod, a named claim, a plain pod, one of the other door, one that waits for another's."""
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_node("c", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_claim("disk")
    await world.add_pod("two", "one", "one")
    await world.settle()
    await world.add_pod("named", claims=["disk"])
    await world.add_pod("plain")
    await world.settle()
    await world.add_pod("native", "one", schedulerName="default-scheduler")
    await world.settle()
    await world.add_pod("later", "one", "one")
    await world.settle()
    assert await world.node_of("later") == ""
    await world.delete_pod("two")
    await world.settle()


async def check(world: World) -> None:
    names = ("named", "plain", "native", "later")
    assert {name: (await world.pod(name)).status.phase for name in names} == dict.fromkeys(names, "Running")
    assert all(count == 1 for count in (await world.devices()).values())
    assert sum((await world.devices()).values()) == 4
    for name in ("named", "native", "later"):
        assert (await world.scheduling(name)).spec.selected_node == await world.node_of(name)
    for name in names:
        await world.delete_pod(name)
    await world.settle()
    await world.client.delete(CLAIMS, "disk", "default")
    await world.settle()
    assert not await world.mirrors()
    assert not (await world.client.list(CLAIMS)).items
    assert world.controller is not None
    assert len(world.ledger) == 0


async def killed_at(world: World, watcher: Any, write: int, *, after: bool) -> int:
    executioner = Executioner(world, write, after=after)
    watching = watcher(world)
    running = asyncio.create_task(executioner.run())
    await story(world)
    await check(world)
    running.cancel()
    watching.stop()
    assert watching.faults == []
    assert executioner.died == bool(write)
    return executioner.client.writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Any, watcher: Any, after: bool) -> None:
    counted: list[int] = []

    async def count(world: World) -> None:
        counted.append(await killed_at(world, watcher, 0, after=False))

    play(count)
    (writes,) = counted
    assert writes > 20
    for write in range(1, writes + 1):

        async def scenario(world: World, write: int = write) -> None:
            try:
                await killed_at(world, watcher, write, after=after)
            except BaseException as error:
                words = "after" if after else "before"
                raise AssertionError(f"killed {words} write {write} of {writes}") from error

        play(scenario)
