"""A simulated cluster, and the page about it, in virtual time: no thread, no socket."""

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.scheduler.conftest import World, played

from parley.cli import logs
from parley.kube.client import Client
from parley.web.links import PageAddress, address
from parley.web.pages import Page, page
from parley.web.snapshots import SlowWork, Snapshots, here

Scenario = Callable[[World], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play() -> Play:
    """Runs a scenario in virtual time, with Kubernetes' parts."""
    logs.silence()
    return played


async def one_runs_and_one_waits(world: World) -> None:
    """Pod `runs` has the only device, which is on node a; pod `wants` waits for it."""
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_node("b")
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await world.settle()
    await world.add_pod("wants", "one")
    await world.settle()


def snapshots(world: World, client: Client | None = None, aside: SlowWork = here) -> Snapshots:
    """Of the cluster as that client sees it."""
    return Snapshots(client or world.server.client(), "default", clock=world.clock, aside=aside)


def at(path: str, **query: str) -> PageAddress:
    """An address."""
    return address(path, query)


async def shown(world: World, path: str, client: Client | None = None, **query: str) -> Page:
    """A page as it is now."""
    made = snapshots(world, client)
    try:
        return await page(made, at(path, **query))
    finally:
        await made.close()
