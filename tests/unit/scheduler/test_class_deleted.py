"""A class that is deleted before its claims are allocated, and created again minutes later as another one."""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.unit.scheduler.changed_driver import Tapes, until
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, no_trouble, slow

from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

MISSING = "spec.resourceClassName='c' does not exist: create that ResourceClass"
AT_ONCE_SECONDS = 2.0

kinds = pytest.mark.parametrize("kind", ["generated", "named", "immediate"])
begins = pytest.mark.parametrize("before", [ShelfDriver.name, Disks.name], ids=["embedded", "standalone"])


class OtherShelfDriver(ShelfDriver):
    """A second embedded driver."""

    name: ClassVar[str] = "other.example.com"


class Drivers:
    """Two embedded and two standalone drivers: the first of each kind is `busy` with what it was asked last, or
    has nothing."""

    def __init__(self, *, busy: bool) -> None:
        self.shelf = Behaviour(other=4 if busy else 0, trouble=slow(25) if busy else no_trouble)
        self.disks = Disks("ab" if busy else "", seconds=40)
        self.tapes = Tapes("ab")

    def start(self, world: World) -> None:
        world.start_parley(drivers=[ShelfDriver(self.shelf), OtherShelfDriver(Behaviour(other=4))])
        world.start_driver(self.disks)
        world.start_driver(self.tapes)

    def relieve(self) -> None:
        """Let all of them be quick, and have what is wanted."""
        self.shelf.trouble, self.shelf.other = no_trouble, 4
        self.disks.seconds, self.disks.nodes = 0, "ab"


async def begin(world: World, kind: str, driver: str, *, busy: bool) -> Drivers:
    """A pod that waits for a claim of class c."""
    for node in "ab":
        await world.add_node(node)
    await world.add_class("c", driverName=driver)
    await world.add_template("c", "c")
    drivers = Drivers(busy=busy)
    drivers.start(world)
    await world.settle()
    if kind != "generated":
        await world.add_claim("mine", "c", mode="Immediate" if kind == "immediate" else "")
    generated = ["c"] if kind == "generated" else []
    await world.add_pod("p", *generated, claims=[] if generated else ["mine"])
    if busy:
        await until(lambda: drivers.shelf.allocated or drivers.disks.held)
    else:
        await world.settle(40)
    return drivers


async def conditions(world: World) -> dict[str, tuple[str, str]]:
    """Reason and message of those conditions of the claim that are not true."""
    found = (await world.claim("mine")).status.conditions
    return {c.type: (c.reason, c.message) for c in found if c.status == "False"}


@kinds
@begins
def test_all_who_wait_are_told_that_the_class_is_missing(play: Any, kind: str, before: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world, kind, before, busy=False)
        await world.client.delete(CLASSES, "c")
        await world.settle()
        told = (
            "ClassNotFound",
            f"{'template default/c' if kind == 'generated' else 'claim default/mine'}: {MISSING}",
        )
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == told
        assert told in await world.events_on("p")
        if kind != "generated":
            read = await conditions(world)
            assert read["Accepted"] == read["Ready"] == told
            assert read["Allocated"] == (told if kind == "immediate" else read["Allocated"])

    play(scenario)


@begins
@pytest.mark.parametrize("after", [ShelfDriver.name, Disks.name], ids=["embedded", "standalone"])
def test_nothing_speaks_of_a_missing_class_once_it_is_there(play: Any, before: str, after: str) -> None:
    """No driver has anything, and one is away."""

    async def scenario(world: World) -> None:
        await begin(world, "immediate", before, busy=False)
        await world.client.delete(CLASSES, "c")
        await world.settle()
        away = after if after == ShelfDriver.name else "away.example.com"
        await world.add_class("c", driverName=away)
        await world.settle()
        read = await conditions(world)
        assert "Accepted" not in read
        why = "NothingViable" if after == ShelfDriver.name else "ClaimPending"
        assert {read["Allocated"][0], read["Ready"][0]} == {why}

    play(scenario)


@kinds
@begins
@pytest.mark.parametrize("busy", [False, True], ids=["nothing is viable", "a driver allocates"])
@pytest.mark.parametrize(
    ("after", "shareable"),
    [
        (ShelfDriver.name, True),
        (OtherShelfDriver.name, False),
        (Disks.name, True),
        (Tapes.name, False),
    ],
    ids=["shelf, shareable", "other shelf", "disks, shareable", "tapes"],
)
def test_they_are_served_at_once_when_the_class_is_there_again(
    play: Any, kind: str, before: str, busy: bool, after: str, shareable: bool
) -> None:
    async def scenario(world: World) -> None:
        drivers = await begin(world, kind, before, busy=busy)
        await world.client.delete(CLASSES, "c")
        await world.settle(60)
        drivers.relieve()
        late = [holding.driver for holding in world.ledger]  # what an embedded driver has begun stays
        assert late == ([before] if busy and before == ShelfDriver.name else [])
        await world.add_class("c", driverName=after, shareable=shareable)
        await asyncio.sleep(AT_ONCE_SECONDS)
        assert await world.node_of("p") != ""
        await world.settle()
        (holding,) = world.ledger
        assert holding.driver == (late or [after])[0]
        assert holding.shareable == (shareable and not late and kind != "generated")
        await world.delete_pod("p")
        if kind != "generated":
            await world.client.delete(CLAIMS, "mine", "default")
        await world.settle()
        await nothing_is_left(world)
        assert not world.ledger._expected
        assert (drivers.disks.held, drivers.tapes.held) == ({}, {})
        assert not (await world.client.list(POD_SCHEDULINGS)).items

    play(scenario)
