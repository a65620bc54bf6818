"""Clusters for tests of claims with allocationMode Immediate, and what such a claim's status and mirror show."""

from typing import Any

from tests.support.conditions import ready
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.meta import Condition


async def gpus(world: World, **devices: int) -> None:
    """Add nodes with devices, the class `gpu` and the template `one`, and start Parley."""
    for node, count in devices.items():
        await world.add_node(node, devices=count)
    await world.add_class()
    await world.add_template()
    world.start_parley()


async def shelves(world: World, behaviour: Behaviour, nodes: str = "ab", **class_: Any) -> None:
    """Add a node for each letter and the class `shelf`, and start Parley with that driver."""
    for node in nodes:
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour)])


async def condition(world: World, claim: str = "now", of_type: str = "Allocated") -> Condition:
    """The claim's condition of that type."""
    (found,) = [c for c in (await world.claim(claim)).status.conditions if c.type == of_type]
    return found


async def says(world: World, claim: str = "now") -> tuple[str, str, str]:
    """Status, reason and message of the claim's condition Allocated."""
    found = await condition(world, claim)
    return found.status, found.reason, found.message


async def is_free(world: World, claim: str = "now") -> None:
    """The claim is allocated and not reserved.

    Its mirror has no allocation, so that Parley alone decides which pod is next.
    """
    status = (await world.claim(claim)).status
    assert ready(await world.claim(claim)) == "Ready"
    assert status.reserved_for == ()
    assert status.allocation is not None
    mirror = await world.mirror(claim)
    assert mirror is not None
    assert (mirror.status.allocation, mirror.status.reserved_for) == (None, [])


async def is_used_by(world: World, *pods: str, claim: str = "now") -> None:
    """The claim and its mirror are allocated, and reserved for these pods."""
    status = (await world.claim(claim)).status
    assert (await condition(world, claim)).status == "True"
    assert sorted(user.name for user in status.reserved_for) == sorted(pods)
    mirror = await world.mirror(claim)
    assert mirror is not None
    assert mirror.status.allocation is not None
    assert sorted(user.name for user in mirror.status.reserved_for) == sorted(pods)


def device_of(status: Any) -> tuple[str, str]:
    """Pool and name of the only device in the claim's status."""
    (handle,) = status.allocation.handles
    ((device),) = handle.devices
    return device.pool, device.device
