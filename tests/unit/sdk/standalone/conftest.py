"""What the tests of standalone drivers have in common."""

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.sdk.standalone.world import Array, World

from parley.simulate.virtual_time import run

Scenario = Callable[[World], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play() -> Play:
    """Runs a scenario in virtual time."""

    async def main(scenario: Scenario) -> None:
        world = World()
        try:
            await scenario(world)
            world.raise_failures()
        finally:
            await world.stop()

    return lambda scenario: run(main(scenario))


@pytest.fixture
def array() -> Array:
    """Three nodes: two disks on node b, one on the others."""
    return Array({"a": 1, "b": 2, "c": 1})
