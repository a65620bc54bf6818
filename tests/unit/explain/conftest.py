"""A simulated cluster, in which pods wait and run, and what is explained about them."""

from collections.abc import Awaitable, Callable
from io import StringIO

import pytest
from tests.unit.scheduler.conftest import World, played

from parley.cli import logs
from parley.explain.explaining import explain
from parley.explain.model import Explanation
from parley.explain.text import console, show

Scenario = Callable[[World], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play() -> Play:
    """Runs a scenario in virtual time, with Parley's controller and its own drivers but for tokens'."""
    logs.silence()
    return played


async def kept_on(world: World, *nodes: str) -> str:
    """A pod ran with the claim "disk" on the first node, and has ended. Returns until when the claim is kept."""
    world.start_parley()
    await world.add_node(nodes[0], 1)
    await world.add_class(whenUnused={"keepSeconds": 600})
    await world.add_template("one")
    await world.add_claim("disk")
    await world.add_pod("ran", claims=["disk"])
    await world.settle()
    await world.delete_pod("ran")
    await world.settle(10)
    for name in nodes[1:]:
        await world.add_node(name, 1)
    return (await world.claim("disk")).status.kept_until or ""


async def explained(world: World, pod: str) -> Explanation:
    """As of now."""
    return await explain(world.client, world.clock(), "default", pod)


def helps(told: Explanation) -> list[str]:
    """What would help."""
    return [remedy.text for remedy in told.remedies]


def said(told: Explanation, by: str) -> list[str]:
    """What somebody said."""
    return [finding.text for finding in told.findings if finding.by == by]


def text_of(told: Explanation, width: int | None = None) -> str:
    """As it is printed where there is no terminal, or on one so wide."""
    written = StringIO()
    show(console(width, file=written), told)
    return written.getvalue()
