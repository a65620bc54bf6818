"""A controller or a standalone driver of it is killed at every write of a scenario, and a new one is started.

Before and after the API server did the write. Always every pod that can run ends up bound once, no device and no
token is held twice, and nothing is left over when the pods are gone: neither in the API nor with the driver.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.killed import Play, Watch

from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS, PODS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client


class Tokens(TokensDriver):
    """Tells what is held, by claim."""

    @property
    def held(self) -> dict[str, Any]:
        return dict(self._held)


class Processes:
    """A controller and a driver, of which one dies and is started again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.driver = Tokens()
        self.start = {"controller": self._controller, "driver": self._driver}

    def _controller(self, client: Client | None = None) -> asyncio.Task[None]:
        return self._world.start_parley(client)

    def _driver(self, client: Client | None = None) -> asyncio.Task[None]:
        self.driver = Tokens()
        return self._world.start_driver(self.driver, client)


async def story(world: World) -> None:
    """A template and a named claim of the standalone driver, one together with a device, and pods that wait."""
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
    await the_driver_is_free(world, processes)


BURST = [f"p{number}" for number in range(6)]


async def burst(world: World) -> None:
    """Four seats, one pod that is asked about, and then five at once: for three there is a seat."""
    for node in "ab":
        await world.add_node(node, devices=0)
    await world.add_class("seat", nodePart="None", parameters={"pool": 2, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_template("seat", "seat")
    await world.add_pod(BURST[0], "seat")
    await world.settle(2)
    for name in BURST[1:]:
        await world.add_pod(name, "seat")
    await world.settle()


async def check_burst(world: World, processes: Processes) -> None:
    served = [name for name in BURST if await world.node_of(name)]
    assert len(served) == len(processes.driver.held) == 4
    await world.delete_pod(served[0])
    await world.delete_pod(served[1])
    await world.settle()
    left = [name for name in BURST if name not in served[:2]]
    assert all([await world.node_of(name) for name in left])
    for name in left:
        await world.delete_pod(name)
    await world.settle()
    await the_driver_is_free(world, processes)


async def evicting(world: World) -> None:
    """Two nodes are full of ordinary pods, one of which goes for a pod of a higher priority; where there is room
    another pod has the only seat."""
    await world.add_node("c", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_class("seat", nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_template("seat", "seat")
    await world.add_pod("holder", "seat", priority=100)
    await world.settle(20)
    for node in "ab":
        await world.add_node(node, devices=1)
        await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
    await world.settle(2)
    await world.add_pod("important", "seat", "one", priority=10, containers=requesting(cpu="4"))
    await world.settle(60)


async def check_evicting(world: World, processes: Processes) -> None:
    pods = [pod.metadata.name for pod in (await world.client.list(PODS)).items]
    assert len(pods) == 3
    assert await world.node_of("important") in ("a", "b")
    assert len(processes.driver.held) == 2
    for name in pods:
        await world.delete_pod(name)
    await world.settle()
    await the_driver_is_free(world, processes)


async def the_driver_is_free(world: World, processes: Processes) -> None:
    assert not (await world.client.list(POD_SCHEDULINGS)).items
    assert processes.driver.held == {}
    await nothing_is_left(world)


STORIES = {
    "one after the other": (story, check),
    "at once": (burst, check_burst),
}


def one_is_killed(
    play: Play,
    watcher: Watch,
    processes_of: tuple[str, str],
    begin: Callable[[World], Awaitable[None]],
    checks: Callable[[World, Processes], Awaitable[None]],
    *,
    after: bool,
    at_least: int,
    start_seconds: float = 0.0,
) -> None:
    """At every write: the first of the two processes, and another one starts so many seconds later."""
    victim, other = processes_of

    async def life(world: World, death: Death) -> int:
        processes = Processes(world)
        watching = watcher(world)
        processes.start[other]()

        def start(client: Client | None) -> asyncio.Task[None]:
            return processes.start[victim](client) if client is not None else asyncio.create_task(start_later())

        async def start_later() -> None:
            await asyncio.sleep(start_seconds)
            await processes.start[victim]()

        async with Executioner(world, start, death) as executioner:
            await begin(world)
            await checks(world, processes)
        watching.stop()
        assert watching.faults == []
        return executioner.writes

    at_every_write(play, life, after=after, at_least=at_least)


@pytest.mark.parametrize("told", STORIES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("victim", "other"), [("controller", "driver"), ("driver", "controller")])
def test_a_kill_at_any_write_changes_nothing_in_the_end(
    play: Play, watcher: Watch, victim: str, other: str, after: bool, told: str
) -> None:
    one_is_killed(play, watcher, (victim, other), *STORIES[told], after=after, at_least=11)


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("victim", "other"), [("controller", "driver"), ("driver", "controller")])
def test_nor_does_one_while_others_are_evicted(
    play: Play, watcher: Watch, victim: str, other: str, after: bool
) -> None:
    """A scheduler that clears a claim has evicted others before a new controller begins."""
    story = (evicting, check_evicting)
    one_is_killed(play, watcher, (victim, other), *story, after=after, at_least=5, start_seconds=1.0)
