"""Nodes of earlier rounds that become viable: the answers of a standalone driver cover the latest round only."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks

from parley.sdk import Answer, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

OTHERS = [f"other-{number}" for number in range(400)]


class Silent(Disks):
    """Answers about the nodes that it is asked about, and gives no alternatives."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(nodes)
        self.changed = asyncio.Event()

    def _answers(self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        free = [node for node in self.nodes if node not in self.held.values()]
        return {claim.name: Answer(tuple(node for node in nodes if node in free)) for claim in request.claims}

    async def consider(
        self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]
    ) -> Mapping[str, Answer]:
        await asyncio.sleep(0.5)
        return self._answers(request, nodes)

    async def follow(self, changed: Callable[[], None]) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            changed()


class Quick(Silent):
    """The same from memory."""

    asynchronous = False
    node_local = True

    def viable(self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return self._answers(request, nodes)


async def begin(world: World, disks: Disks) -> None:
    """Two nodes in one zone, about which the controller asks one after the other."""
    for node in "ab":
        await world.add_node(node, labels={"zone": "one"})
    await world.add_class("disk", driverName=disks.name)
    await world.add_template("disk", "disk")
    world.start_parley(candidates=1)
    world.start_driver(disks)
    await world.settle()


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize("kind", [Silent, Quick])
def test_a_pod_gets_a_node_of_any_round_when_its_driver_has_something_there(
    play: Any, kind: type[Silent], node: str
) -> None:
    async def scenario(world: World) -> None:
        disks = kind([])
        await begin(world, disks)
        await world.add_pod("p", "disk")
        await world.settle()
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"
        disks.nodes = [node]
        disks.changed.set()
        await world.settle()
        assert await world.node_of("p") == node

    play(scenario)


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize("kind", [Silent, Quick])
def test_a_pod_gets_a_node_of_any_round_when_a_disk_is_freed_there_though_others_are_where_it_cannot_go(
    play: Any, kind: type[Silent], node: str
) -> None:
    async def scenario(world: World) -> None:
        disks = kind(["a", "b", *OTHERS])
        for other in OTHERS:
            await world.add_node(other, labels={"zone": "two"})
        await begin(world, disks)
        for taken in "ab":
            await world.add_pod(f"on-{taken}", "disk", nodeSelector={"kubernetes.io/hostname": taken})
        await world.settle()
        await world.add_pod("p", "disk", nodeSelector={"zone": "one"})
        await world.settle()
        assert await world.node_of("p") == ""
        await world.delete_pod(f"on-{node}")
        await world.settle(600)
        assert await world.node_of("p") == node

    play(scenario)
