"""A driver of tokens that runs in the controller, or alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from parley.drivers.tokens import TokensDriver
from parley.sdk import Driver
from parley.sdk.standalone import StandaloneDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


PODS = ("one", "two", "three")


@asynccontextmanager
async def outside(world: World, driver: Driver[Any, Any]) -> AsyncIterator[None]:
    """The driver runs standalone."""
    running = asyncio.create_task(StandaloneDriver(world.server.client(), driver, world.clock).run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def alone(world: World) -> AsyncIterator[TokensDriver]:
    """The tokens' driver, as it runs standalone."""
    tokens = TokensDriver()
    async with outside(world, tokens):
        yield tokens


async def has_pool(world: World, tokens: int) -> None:
    """A node, and a class and a template for so many tokens."""
    await world.add_node("a")
    await world.add_class("pool", driverName=TokensDriver.name, nodePart="None", parameters={"pool": tokens})
    await world.add_template("t", "pool")


async def begin(world: World) -> None:
    """Two of the pods have all the tokens that there are."""
    await has_pool(world, 2)
    world.start_parley(drivers=[TokensDriver()])
    for name in PODS:
        await world.add_pod(name, "t")
        await world.settle()
    assert await bound(world) == ["one", "two"]


async def bound(world: World) -> list[str]:
    return [name for name in PODS if await world.node_of(name)]
