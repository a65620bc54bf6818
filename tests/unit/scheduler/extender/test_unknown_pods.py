"""A scheduler's question may come when its pod is gone already, or not known yet: nothing stays of the former."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.scheduler.extender.unknown import FORGET_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Any], None]

AWAY = "parley-away"


async def begin(world: World, devices: int) -> None:
    await world.add_node("a", devices=devices)
    await world.add_class()
    await world.add_template()
    world.start_parley()
    await world.settle()


@pytest.mark.parametrize(("verb", "devices"), [("filter", 0), ("filter", 1), ("preempt", 0)])
def test_nothing_is_remembered_of_a_pod_that_is_asked_about_when_it_is_gone(
    play: Play, verb: str, devices: int
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices)
        await world.add_pod("p", "one", schedulerName=AWAY)
        await world.settle()
        question = await world.question("p", "a")
        if verb == "preempt":
            question = {
                "Pod": question["Pod"],
                "NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}},
            }
        await world.delete_pod("p")
        await world.settle()
        assert extender_of(world).entries == 0
        await world.ask(verb, question)
        await asyncio.sleep(FORGET_SECONDS + 1)
        assert extender_of(world).entries == 0

    play(scenario)


def test_a_late_question_leaves_the_pod_alone_that_has_the_name_now(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 0)
        await world.add_pod("p", "one", schedulerName=AWAY)
        await world.settle()
        late = await world.question("p", "a")
        await world.delete_pod("p")
        await world.settle()
        await world.add_template("two", count=2)
        await world.publish("a", ["gpu-0"])
        await world.add_pod("p", "two")
        await world.settle()
        await world.ask("filter", late)
        await asyncio.sleep(FORGET_SECONDS + 1)
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.delete_pod("p")
        await world.settle()
        assert extender_of(world).entries == 0

    play(scenario)


def test_a_pod_that_becomes_known_after_the_question_is_remembered(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 0)
        await world.add_pod("p", "one", schedulerName=AWAY)
        await world.settle()
        await world.ask("filter", await world.question("p", "a"))
        await asyncio.sleep(FORGET_SECONDS + 1)
        assert extender_of(world).entries > 0
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"

    play(scenario)


def extender_of(world: World) -> Any:
    assert world.controller is not None
    assert world.controller.extender is not None
    return world.controller.extender
