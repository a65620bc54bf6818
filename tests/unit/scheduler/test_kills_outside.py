"""A controller or a driver outside of it is killed at every write of a scenario, and a new one is started.

Before and after the API server did the write. Always every pod that can run ends up bound once, no device and no
token is held twice, and nothing is left over when the pods are gone: neither in the API nor with the driver.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client
from parley.kube.faults import Call, FaultClient

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Watcher, World
else:
    World = Watcher = Any

Watch = Callable[[World], Watcher]
Play = Callable[[Callable[[World], Any]], None]


class Killed(BaseException):
    """The process is gone: no further call leaves it."""


class Tokens(TokensDriver):
    """Tells what is held, by claim."""

    @property
    def held(self) -> dict[str, Any]:
        return dict(self._held)


class Processes:
    """Controller and driver, of which one dies at its n-th write and is started again, as Kubernetes would."""

    def __init__(self, world: World, victim: str, write: int, *, after: bool) -> None:
        self.world = world
        self.write = write
        self.after = after
        self.died = False
        self.client = FaultClient(world.server.client(), before=self._before, after=self._after)
        self.driver = Tokens()
        self.start = {"controller": self._controller, "driver": self._driver}
        self.victim = victim

    def _before(self, call: Call) -> None:
        if self.write and call.write and call.write + (not self.after) > self.write:
            raise Killed

    def _after(self, call: Call) -> None:
        if self.write and self.after and call.write == self.write:
            raise Killed

    def _controller(self, client: Client | None = None) -> asyncio.Task[None]:
        return self.world.start_parley(client)

    def _driver(self, client: Client | None = None) -> asyncio.Task[None]:
        self.driver = Tokens()
        return self.world.start_driver(self.driver, client)

    async def run(self) -> None:
        for name, start in self.start.items():
            if name != self.victim:
                start()
        task = self.start[self.victim](self.client)
        self.world.killed.add(task)
        await asyncio.wait([task])
        self.died = True
        self.start[self.victim]()


async def story(world: World) -> None:
    """A template and a named claim of the driver outside, one together with a device, and pods that wait."""
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_class("seat", nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_template("seat", "seat")
    await world.add_claim("mine", "seat")
    await world.add_pod("mixed", "seat", "one")
    await world.settle()
    await world.add_pod("named", claims=["mine"])
    await world.settle()
    await world.add_pod("later", "seat")
    await world.settle()
    assert await world.node_of("later") == ""
    await world.delete_pod("mixed")
    await world.settle()


async def check(world: World, processes: Processes) -> None:
    assert {name: bool(await world.node_of(name)) for name in ("named", "later")} == {"named": True, "later": True}
    assert await world.node_of("named") != await world.node_of("later")
    assert len(processes.driver.held) == 2
    await world.finish_pod("later")
    await world.delete_pod("named")
    await world.settle()
    assert processes.driver.held == {}
    await world.delete_pod("later")
    await world.client.delete(CLAIMS, "mine", "default")
    await world.settle()
    assert not await world.mirrors()
    assert not (await world.client.list(CLAIMS)).items
    assert not (await world.client.list(POD_SCHEDULINGS)).items
    assert processes.driver.held == {}
    assert world.controller is not None
    assert len(world.controller.ledger) == 0


async def killed_at(world: World, watcher: Watch, victim: str, write: int, *, after: bool) -> int:
    processes = Processes(world, victim, write, after=after)
    watching = watcher(world)
    running = asyncio.create_task(processes.run())
    await story(world)
    await check(world, processes)
    running.cancel()
    watching.stop()
    assert watching.faults == []
    assert processes.died == bool(write)
    return processes.client.writes


def count_writes(play: Play, watcher: Watch, victim: str) -> int:
    counted: list[int] = []

    async def scenario(world: World) -> None:
        counted.append(await killed_at(world, watcher, victim, 0, after=False))

    play(scenario)
    return counted[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("victim", ["controller", "driver"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(
    play: Play, watcher: Watch, victim: str, after: bool
) -> None:
    writes = count_writes(play, watcher, victim)
    assert writes > 10
    for write in range(1, writes + 1):

        async def scenario(world: World, write: int = write) -> None:
            try:
                await killed_at(world, watcher, victim, write, after=after)
            except BaseException as error:
                moment = "after" if after else "before"
                raise AssertionError(f"{victim} killed {moment} write {write} of {writes}") from error

        play(scenario)
