"""A driver that leaves data on nodes, and what its nodes removed."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.scheduler.conftest import World

from parley.api.models import ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.drivers.device import DeviceDriver
from parley.drivers.device.driver import DeviceRequest
from parley.kube.client import Client
from parley.kube.informer import Informer
from parley.sdk import Allocation

KEEP = 600


class Leaving(DeviceDriver):
    """Leaves something on nodes."""

    leaves_data = True


class Numbering(Leaving):
    """Hands out another handle at each allocation, as the driver for workspaces does."""

    allocations = 0

    async def allocate(self, request: DeviceRequest, node: str) -> Mapping[str, Allocation]:
        allocated = await super().allocate(request, node)
        self.allocations += 1
        return {name: replace(a, data={**a.data, "number": self.allocations}) for name, a in allocated.items()}


class Removals:
    """Which claims' data was removed where, by the ClaimReleases that their nodes answered."""

    def __init__(self, world: World) -> None:
        self.done: list[tuple[str, str]] = []
        self.allowed: list[tuple[str, str]] = []
        """Those of them that the nodes could meet; others were withdrawn."""
        self.numbers: list[int] = []
        """The numbers of the allocations that nodes could remove, of drivers that number them."""
        self.faults: list[str] = []
        self._world = world
        self._informer = Informer(world.client, CLAIM_RELEASES, on_change=self._changed)
        self.task = asyncio.create_task(self._informer.run())

    def _changed(self, old: ClaimRelease | None, new: ClaimRelease | None) -> None:
        if old is not None and new is None and old.spec.remove_data:
            self.done.append((old.spec.claim.name, old.spec.node_name))
            if old.status.allocation_cleared:
                self.allowed.append(self.done[-1])
                (handle,) = old.spec.allocation.handles
                self.numbers += [handle.data["number"]] if handle.data and "number" in handle.data else []


def lead(world: World, client: Client | None = None) -> asyncio.Task[None]:
    return world.start_parley(client, drivers=[Leaving()])


async def begin(world: World, *nodes: str, keep: int | None = None, **class_: Any) -> Removals:
    for node in nodes:
        await world.add_node(node, devices=1)
    unused: dict[str, Any] = {"whenUnused": {"keepSeconds": keep}} if keep else {}
    await world.add_class(**unused, **class_)
    await world.add_template()
    lead(world)
    await world.add_claim("disk")
    await world.settle()
    return Removals(world)
