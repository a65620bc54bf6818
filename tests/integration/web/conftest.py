"""The page of a cluster in memory, in a real browser: no cluster of the machine's is needed.

Parley's controller and drivers are the real ones, as are the server and the thread that makes pages.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.browser.chromium import require_browser
from tests.browser.devtools import Browser, browser
from tests.unit.scheduler.conftest import World

from parley.cli import logs
from parley.cli.endpoints import served
from parley.web.server import application
from parley.web.snapshots import Snapshots, Thread


@pytest.fixture(scope="module")
def program() -> Path:
    """The browser's."""
    return require_browser()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chromium(program: Path) -> AsyncIterator[Browser]:
    """A browser for all tests of a file; each has pages of its own."""
    async with browser(program) as started:
        yield started


@pytest.fixture
def quiet() -> None:
    """Nothing is logged."""
    logs.silence()


@pytest_asyncio.fixture(loop_scope="module")
async def world(quiet: None) -> AsyncIterator[World]:
    """Pod `runs` has the only device, which is on node a; pod `wants` waits for it, and b has none."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_node("b")
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await until(lambda: _bound(world, "runs"))
    await world.add_pod("wants", "one")
    await until(lambda: _waits(world, "wants"))
    yield world
    await world.stop()


async def _bound(world: World, pod: str) -> bool:
    return bool(await world.node_of(pod))


async def _waits(world: World, pod: str) -> bool:
    return any(reason == "NothingViable" for reason, _ in await world.events_on(pod))


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 120.0) -> None:
    """Return when it is true."""
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - the cluster in memory has no event for it
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="module")
async def url(world: World) -> AsyncIterator[str]:
    """Where the page is served, without a slash at its end."""
    aside = Thread()
    snapshots = Snapshots(world.server.client(), "default", clock=world.clock, aside=aside)
    async with served(application(snapshots), 0, "127.0.0.1") as port:
        yield f"http://127.0.0.1:{port}"
    await snapshots.close()
    aside.close()
