"""Disks that a standalone driver attaches, and a cluster with its class."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.endings import nothing_is_left

from parley.api.resources import CLASSES, POD_SCHEDULINGS
from parley.sdk import Allocation, Answer, Driver, Held, NoParameters, PermanentError, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Disks(Driver[NoParameters, NoParameters]):
    """One disk per node; attaching takes `seconds`, and never succeeds on nodes in `broken` or `flaky`."""

    name = "disks.example.com"
    parameters = NoParameters
    class_parameters = NoParameters
    asynchronous = True

    def __init__(self, nodes: Sequence[str], seconds: float = 0.0) -> None:
        self.nodes = nodes
        self.seconds = seconds
        self.broken: set[str] = set()
        self.flaky: set[str] = set()
        self.held: dict[str, str] = {}
        self.tried: list[str] = []

    async def consider(
        self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]
    ) -> Mapping[str, Answer]:
        await asyncio.sleep(0.5)
        free = [node for node in self.nodes if node not in self.held.values()]
        viable = tuple(node for node in nodes if node in free)
        others = tuple(node for node in free if node not in nodes)
        refused = {node: "no free disk" for node in nodes if node not in viable}
        return {claim.name: Answer(viable, None if viable else others, refused) for claim in request.claims}

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        self.tried.append(node)
        if node in self.held.values():
            raise RuntimeError("the disk is taken")
        (claim,) = request.claims
        self.held[claim.uid] = node
        request.progress("attaching")
        await asyncio.sleep(self.seconds)
        if node in self.broken | self.flaky:
            del self.held[claim.uid]
            raise PermanentError("no cable") if node in self.broken else RuntimeError("the array is busy")
        return {claim.name: Allocation(data={"disk": node})}

    async def deallocate(self, uid: str) -> None:
        self.held.pop(uid, None)

    def restore(self, held: Held) -> None:
        assert held.node is not None
        self.held[held.uid] = held.node


async def prepare(world: World, disks: Disks, *, nodes: str = "abc", devices: int = 1) -> None:
    for node in nodes:
        await world.add_node(node, devices=devices)
    await world.add_class()
    await world.add_template()
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
    await world.add_template("disk", "disk")
    world.start_parley()
    world.start_driver(disks)
    await world.settle()


async def disks_are_free(world: World, disks: Disks) -> None:
    assert disks.held == {}
    assert not (await world.client.list(POD_SCHEDULINGS)).items
    await nothing_is_left(world)
