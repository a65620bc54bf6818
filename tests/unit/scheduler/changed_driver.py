"""For tests in which a class gets another driver while its standalone driver allocates: setup and checks."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS
from parley.kube.client import NotFound
from parley.sdk.recorded import driver_of_record

SECONDS = 40.0
"""How long it takes to attach a disk."""

ChangeClass = Callable[["World", str], Any]


class Tapes(Disks):
    """Another standalone driver."""

    name: ClassVar[str] = "tapes.example.com"


async def begin(world: World, disks: Disks, places: int = 4) -> Behaviour:
    """A class of the standalone driver, and an embedded driver that could serve it as well."""
    behaviour = Behaviour(other=places)
    for node in "ab":
        await world.add_node(node)
    await world.add_class("disk", driverName=disks.name)
    await world.add_template("disk", "disk")
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    await world.settle()
    return behaviour


async def edit(world: World, driver: str) -> None:
    """An administrator changes the class."""
    await world.client.patch(CLASSES, "disk", {"driverName": driver})


async def replace(world: World, driver: str) -> None:
    """An administrator deletes the class, and creates it anew after a moment."""
    await world.client.delete(CLASSES, "disk")
    await asyncio.sleep(1)
    await world.add_class("disk", driverName=driver)


async def replace_at_once(world: World, driver: str) -> None:
    """An administrator deletes the class and creates it anew."""
    await world.client.delete(CLASSES, "disk")
    await world.add_class("disk", driverName=driver)


async def add_user(world: World, kind: str, name: str = "p") -> None:
    """A pod whose claim is named, or generated."""
    if kind == "named":
        await world.add_claim("mine", "disk")
        await world.add_pod(name, claims=["mine"])
    else:
        await world.add_pod(name, "disk")


async def until(held: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until it holds, at most that many virtual seconds."""
    for _ in range(int(seconds * 100)):
        if held():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never so")


async def asked(world: World, pod: str = "p") -> tuple[str, ...]:
    """The standalone drivers that the pod's PodScheduling asks."""
    try:
        return tuple(claim.driver_name for claim in (await world.scheduling(pod)).spec.claims)
    except NotFound:
        return ()


async def nothing_is_marked_by(world: World, driver: str) -> None:
    """No claim says that the driver holds something for it."""
    for claim in (await world.client.list(CLAIMS)).items:
        assert driver_of_record(claim) != driver
        assert driver_finalizer(driver) not in claim.metadata.finalizers


async def ends(world: World, *disks: Disks, pod: str = "p") -> None:
    """When the pod is deleted, all drivers deallocate, and no claim is left allocated or marked."""
    await world.delete_pod(pod)
    await world.settle()
    assert [one.held for one in disks] == [{}] * len(disks)
    assert len(world.ledger) == 0
    assert not world.ledger._expected
    for claim in (await world.client.list(CLAIMS)).items:
        assert (claim.metadata.name, claim.status.allocation) == ("mine", None)
        assert not [name for name in claim.metadata.finalizers if name.endswith("example.com/deletion-protection")]


async def allocating(world: World, kind: str) -> tuple[Disks, Behaviour]:
    """A standalone driver that allocates for a pod at this moment, and the behaviour of the embedded one."""
    disks = Disks(["a", "b"], seconds=SECONDS)
    behaviour = await begin(world, disks)
    world.start_driver(disks)
    await add_user(world, kind)
    await until(lambda: disks.held)
    return disks, behaviour


async def has_taken_back(world: World, disks: Disks) -> None:
    """The driver holds nothing, is asked for nothing, and has left no mark."""
    assert disks.held == {}
    assert await asked(world) == ()
    await nothing_is_marked_by(world, disks.name)


kinds = pytest.mark.parametrize("kind", ["generated", "named"])
changes = pytest.mark.parametrize("change", [edit, replace, replace_at_once])


def held_driver(world: World, disks: Disks) -> HeldWatch:
    """The driver runs; what it sees of PodSchedulings can be held back."""
    watch = HeldWatch(world.server.client(), POD_SCHEDULINGS)
    world.start_driver(disks, watch)
    return watch
