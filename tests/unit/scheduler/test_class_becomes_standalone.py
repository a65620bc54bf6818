"""Classes that become another standalone driver's, and immediate claims of classes that get another driver.

Of two drivers the one that records its allocation first has the claim; the other one deallocates.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.changed_driver import (
    SECONDS,
    ChangeClass,
    Tapes,
    add_user,
    begin,
    changes,
    edit,
    ends,
    held_driver,
    kinds,
    nothing_is_marked_by,
    until,
)
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import ShelfDriver

from parley.api.resources import CLAIMS, CLASSES
from parley.sdk.recorded import driver_of_record

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


@kinds
@changes
def test_another_standalone_driver_allocates_and_the_former_one_takes_back(
    play: Any, kind: str, change: ChangeClass
) -> None:
    async def scenario(world: World) -> None:
        disks, tapes = Disks(["a", "b"], seconds=SECONDS), Tapes(["a", "b"], seconds=3)
        await begin(world, disks)
        world.start_driver(disks)
        world.start_driver(tapes)
        await add_user(world, kind)
        await until(lambda: disks.held)
        await change(world, tapes.name)
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert (len(disks.held), len(tapes.held)) == (0, 1)
        await nothing_is_marked_by(world, disks.name)
        await ends(world, disks, tapes)

    play(scenario)


@kinds
@pytest.mark.parametrize("slower", ["former", "new"])
def test_of_two_standalone_drivers_the_one_that_records_first_has_the_claim(
    play: Any, kind: str, slower: str
) -> None:
    """The former one hears of the change when it is too late."""

    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=SECONDS if slower == "former" else 3)
        tapes = Tapes(["a", "b"], seconds=3 if slower == "former" else SECONDS)
        await begin(world, disks)
        watch = held_driver(world, disks)
        world.start_driver(tapes)
        await add_user(world, kind)
        await until(lambda: disks.held)
        watch.open.clear()
        await edit(world, tapes.name)
        await asyncio.sleep(SECONDS + 20)
        watch.open.set()
        await world.settle(60)
        assert await world.node_of("p") != ""
        (holding,) = world.ledger
        assert (len(disks.held), len(tapes.held)) == ((0, 1) if slower == "former" else (1, 0))
        assert holding.driver == (tapes.name if slower == "former" else disks.name)
        await nothing_is_marked_by(world, disks.name if slower == "former" else tapes.name)
        await ends(world, disks, tapes)

    play(scenario)


@kinds
def test_a_driver_that_was_away_leaves_what_another_one_has_recorded(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        disks, tapes = Disks(["a", "b"], seconds=SECONDS), Tapes(["a", "b"])
        await begin(world, disks)
        process = world.start_driver(disks)
        world.start_driver(tapes)
        await add_user(world, kind)
        await until(lambda: disks.held)
        world.killed.add(process)
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        await edit(world, tapes.name)
        await world.settle(60)
        assert await world.node_of("p") != ""
        world.start_driver(disks)
        await world.settle(60)
        assert (len(disks.held), len(tapes.held)) == (0, 1)
        await nothing_is_marked_by(world, disks.name)
        (holding,) = world.ledger
        assert holding.driver == tapes.name
        await ends(world, disks, tapes)

    play(scenario)


@kinds
def test_an_embedded_driver_that_has_begun_goes_on_when_the_class_becomes_a_standalone_drivers(
    play: Any, kind: str
) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=SECONDS)
        behaviour = await begin(world, disks)
        await edit(world, ShelfDriver.name)
        world.start_driver(disks)
        behaviour.trouble = lambda _: asyncio.sleep(5)
        await add_user(world, kind)
        await until(lambda: behaviour.allocated)
        await edit(world, disks.name)
        await world.settle(60)
        assert await world.node_of("p") != ""
        held = behaviour.calls["allocate"] - behaviour.calls["deallocate"]
        assert held + len(disks.held) == 1
        await ends(world, disks)

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("to", [ShelfDriver.name, Tapes.name], ids=["embedded", "standalone"])
@pytest.mark.parametrize("away", [False, True], ids=["", "the-driver-is-away"])
def test_an_immediate_claim_is_allocated_by_the_driver_that_its_class_has_now(
    play: Any, to: str, away: bool
) -> None:
    async def scenario(world: World) -> None:
        disks, tapes = Disks(["a", "b"], seconds=SECONDS), Tapes(["a", "b"], seconds=3)
        await begin(world, disks)
        process = world.start_driver(disks)
        world.start_driver(tapes)
        await world.add_claim("mine", "disk", mode="Immediate")
        await until(lambda: disks.held)
        if away:
            world.killed.add(process)
            process.cancel()
            await asyncio.gather(process, return_exceptions=True)
        await edit(world, to)
        await world.settle(60)
        if away:
            assert driver_of_record(await world.claim("mine")) == to
            world.start_driver(disks)
            await world.settle(60)
        assert driver_of_record(await world.claim("mine")) == to
        assert len(disks.held) == 0
        await nothing_is_marked_by(world, disks.name)
        (holding,) = world.ledger
        assert holding.driver == to
        await world.client.delete(CLAIMS, "mine", "default")
        await world.settle(60)
        assert len(world.ledger) == 0
        assert tapes.held == {}

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("to", [ShelfDriver.name, Tapes.name], ids=["embedded", "standalone"])
def test_of_an_immediate_claim_the_first_record_counts(play: Any, to: str) -> None:
    """The former driver has not heard of the change."""

    async def scenario(world: World) -> None:
        disks, tapes = Disks(["a", "b"], seconds=5), Tapes(["a", "b"], seconds=20)
        behaviour = await begin(world, disks)
        behaviour.trouble = lambda _: asyncio.sleep(20)
        watch = HeldWatch(world.server.client(), CLASSES)
        world.start_driver(disks, watch)
        world.start_driver(tapes)
        await world.add_claim("mine", "disk", mode="Immediate")
        await until(lambda: disks.held)
        watch.open.clear()
        await edit(world, to)
        await asyncio.sleep(60)
        watch.open.set()
        await world.settle(60)
        (holding,) = world.ledger
        assert driver_of_record(await world.claim("mine")) == holding.driver
        shelf = behaviour.calls["allocate"] - behaviour.calls["deallocate"]
        assert {disks.name: len(disks.held), tapes.name: len(tapes.held), ShelfDriver.name: shelf} == {
            disks.name: 0,
            tapes.name: 0,
            ShelfDriver.name: 0,
            holding.driver: 1,
        }
        await world.client.delete(CLAIMS, "mine", "default")
        await world.settle(60)
        assert len(world.ledger) == 0
        assert (disks.held, tapes.held) == ({}, {})

    play(scenario)
