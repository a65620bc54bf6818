"""Templates that are gone while their watch is late: nothing is written in a loop."""

import asyncio

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.killed import Play

from parley.api.resources import BUILTIN_TEMPLATES, TEMPLATES
from parley.kube.client import NotFound

LATE = 10
"""Seconds."""

MOST = 3
"""Mirrors that may be made meanwhile."""


@pytest.mark.parametrize("replaced", [False, True])
def test_the_mirror_of_a_template_that_is_gone_is_not_made_again_and_again(play: Play, replaced: bool) -> None:
    async def scenario(world: World) -> None:
        made = 0

        def count(call: NumberedCall) -> None:
            nonlocal made
            made += call.verb == "create" and call.resource == BUILTIN_TEMPLATES
            if made > 100:
                raise RuntimeError("in a loop")

        watch = HeldWatch(FaultClient(world.server.client(), before=count), TEMPLATES)
        world.start_parley(watch)
        await world.add_class()
        await world.add_template()
        await world.settle(5)
        watch.open.clear()
        made = 0
        await world.client.delete(TEMPLATES, "one", "default")
        if replaced:
            await world.add_template()
        await asyncio.sleep(LATE)
        assert made <= MOST
        watch.open.set()
        await world.settle()
        if replaced:
            await world.client.get(BUILTIN_TEMPLATES, "one", "default")
        else:
            with pytest.raises(NotFound):
                await world.client.get(BUILTIN_TEMPLATES, "one", "default")

    play(scenario)


def test_no_mirror_is_made_for_a_template_that_is_on_its_way_out(play: Play) -> None:
    """Somebody waits for its mirror to go: with foreground deletion the garbage collector, before the template."""

    async def scenario(world: World) -> None:
        watch = HeldWatch(world.server.client(), TEMPLATES)
        world.start_parley(watch)
        await world.add_class()
        await world.add_template()
        await world.client.patch(TEMPLATES, "one", {"metadata": {"finalizers": ["example.com/waits"]}}, "default")
        await world.settle(5)
        watch.open.clear()
        await world.client.delete(TEMPLATES, "one", "default")
        await world.client.delete(BUILTIN_TEMPLATES, "one", "default")
        await asyncio.sleep(LATE)
        with pytest.raises(NotFound):
            await world.client.get(BUILTIN_TEMPLATES, "one", "default")
        watch.open.set()
        await world.settle()
        with pytest.raises(NotFound):
            await world.client.get(BUILTIN_TEMPLATES, "one", "default")

    play(scenario)
