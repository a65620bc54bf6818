"""A node comes while a standalone driver considers its answer about the others, or is away."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.test_standalone import Disks

from parley.api.resources import CLASSES, NODES
from parley.sdk import Answer, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Plain(Disks):
    """Knows of no other nodes than those that it is asked about."""

    async def consider(
        self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]
    ) -> Mapping[str, Answer]:
        found = await super().consider(request, nodes)
        await asyncio.sleep(5)
        return {name: Answer(answer.viable, None, answer.reasons) for name, answer in found.items()}


async def begin(world: World, disks: Disks) -> None:
    """The driver is yet to be started."""
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
    await world.add_template("disk", "disk")
    world.start_parley()


@pytest.mark.parametrize("how", ["new", "uncordoned"])
def test_a_node_that_comes_while_the_driver_considers_is_found(play: Any, how: str) -> None:
    async def scenario(world: World) -> None:
        disks = Plain(["b"])
        await world.add_node("a")
        if how == "uncordoned":
            await world.add_node("b")
            await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await begin(world, disks)
        world.start_driver(disks)
        await world.settle()
        await world.add_pod("p", "disk")
        await asyncio.sleep(2)
        if how == "new":
            await world.add_node("b")
        else:
            await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await asyncio.sleep(3600)
        assert await world.node_of("p") == "b", (await world.scheduling("p")).status.message

    play(scenario)


def test_a_node_that_comes_while_the_driver_is_away_is_found(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.client.patch(NODES, "a", {"metadata": {"labels": {"full": "yes"}}})
        disks = Plain(["b"])
        await begin(world, disks)
        await world.settle()
        await world.add_pod("p", "disk")
        await asyncio.sleep(600)
        assert (await world.scheduling("p")).status.waiting_for == "DriverNotAnswering"
        await world.add_node("b")
        await asyncio.sleep(600)
        world.start_driver(disks)
        await asyncio.sleep(3600)
        assert await world.node_of("p") == "b", (await world.scheduling("p")).status.message

    play(scenario)
