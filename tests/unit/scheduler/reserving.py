"""Workspaces that reserve room on nodes, and tasks that use them."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.containers import requesting
from tests.unit.scheduler.conftest import World

from parley.api.models import Hold
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import CLASSES, RESOURCE_SLICES
from parley.drivers.workspace import DISK, WorkspaceDriver

MOST = {"cpu": "8", "memory": "16Gi", "pods": 100}


NIGHT = "night"
"""A class to which claims may yield what they reserve."""


async def disks(
    world: World,
    *nodes: str,
    most: dict[str, Any] | None = MOST,
    hold: Hold = "Ledger",
    yields_to: Sequence[str] = (),
) -> None:
    """Nodes with disks, 8 CPUs and 16Gi; the class `workspace` is shareable and keeps claims without users."""
    for node in nodes:
        await world.add_node(node)
        device = {"name": DISK, "capacity": {"size": {"value": "10Gi"}}}
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": WorkspaceDriver.name, "nodeName": node, "pool": pool, "devices": [device]}
        metadata = {"name": f"{node}-disk", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
        await world.create(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
    body = {"driverName": WorkspaceDriver.name, "shareable": True, "whenUnused": {"keepSeconds": 3600}}
    parameters = {"hold": hold, "yieldsTo": yields_to, **({"maxReserve": most} if most else {})}
    await world.create(CLASSES, {"metadata": {"name": "workspace"}, **body, "parameters": parameters})
    await world.create(CLASSES, {"metadata": {"name": NIGHT}, "driverName": WorkspaceDriver.name})


async def begin(
    world: World,
    *nodes: str,
    most: dict[str, Any] | None = MOST,
    driver: Callable[[], WorkspaceDriver] = WorkspaceDriver,
    yields_to: Sequence[str] = (),
) -> None:
    """With a controller."""
    await disks(world, *nodes, most=most, yields_to=yields_to)
    world.start_parley(drivers=[driver()])


async def claim(
    world: World, name: str, reserve: dict[str, Any] | None = None, mode: str = "", **more: Any
) -> None:
    parameters = {"size": "1Mi", **({"reserve": reserve} if reserve else {}), **more}
    await world.add_claim(name, "workspace", mode, **parameters)


async def borrower(world: World, name: str, cpu: str, **spec: Any) -> str:
    """A task with a claim of the class `NIGHT`, which has its name."""
    await world.add_claim(name, NIGHT, size="1Mi")
    return await task(world, name, name, cpu=cpu, **spec)


async def task(world: World, name: str, *claims: str, cpu: str = "1", **spec: Any) -> str:
    """A pod that requests so much; the node that it is bound to, "" if it is not."""
    await world.add_pod(name, claims=claims, containers=requesting(cpu=cpu), **spec)
    await world.settle()
    return await world.node_of(name)
