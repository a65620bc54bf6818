"""Classes that become an embedded driver's while a standalone driver of theirs is asked, or allocates, for a pod.

Who is not the class's driver any more takes back what it began; what it has recorded by then counts.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.changed_driver import (
    SECONDS,
    ChangeClass,
    Tapes,
    add_user,
    allocating,
    asked,
    begin,
    changes,
    edit,
    ends,
    has_taken_back,
    held_driver,
    kinds,
    nothing_is_marked_by,
    until,
)
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import ShelfDriver, restart

from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.kube.client import OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


@kinds
@changes
def test_a_standalone_driver_that_allocates_takes_back_when_the_class_becomes_an_embedded_drivers(
    play: Any, kind: str, change: ChangeClass
) -> None:
    async def scenario(world: World) -> None:
        disks, behaviour = await allocating(world, kind)
        await change(world, ShelfDriver.name)
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert behaviour.calls["allocate"] == 1
        await has_taken_back(world, disks)
        await ends(world, disks)

    play(scenario)


@kinds
def test_it_takes_back_also_if_the_embedded_driver_has_nothing_for_the_pod(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=SECONDS)
        await begin(world, disks, places=0)
        world.start_driver(disks)
        await add_user(world, kind)
        await until(lambda: disks.held)
        await edit(world, ShelfDriver.name)
        await world.settle(60)
        assert await world.node_of("p") == ""
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"
        await has_taken_back(world, disks)
        await edit(world, disks.name)
        await world.settle(60)
        assert await world.node_of("p") in ("a", "b")
        assert len(disks.held) == 1
        await ends(world, disks)

    play(scenario)


@kinds
def test_it_takes_back_if_the_controller_is_replaced_at_that_moment(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        disks, behaviour = await allocating(world, kind)
        await world.crash()
        await edit(world, ShelfDriver.name)
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert behaviour.calls["allocate"] == 1
        await has_taken_back(world, disks)
        await ends(world, disks)

    play(scenario)


@kinds
def test_it_takes_back_though_the_write_that_withdraws_the_question_is_lost(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        lost = list[NumberedCall]()

        def lose(call: NumberedCall) -> None:
            asks_nobody = call.resource == POD_SCHEDULINGS and call.writes and not call.body["spec"].get("claims")
            if asks_nobody and not lost:
                lost.append(call)
                raise OutcomeUnknown("no answer")

        disks = Disks(["a", "b"], seconds=SECONDS)
        behaviour = await begin(world, disks)
        await world.crash()
        world.start_parley(FaultClient(world.server.client(), before=lose), drivers=[ShelfDriver(behaviour)])
        world.start_driver(disks)
        behaviour.trouble = lambda _: asyncio.sleep(20)
        await add_user(world, kind)
        await until(lambda: disks.held)
        await edit(world, ShelfDriver.name)
        await asyncio.sleep(5)
        assert (len(lost), behaviour.calls["allocate"]) == (1, 1)
        await has_taken_back(world, disks)
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert [holding.driver for holding in world.ledger] == [ShelfDriver.name]
        await has_taken_back(world, disks)
        await ends(world, disks)

    play(scenario)


@kinds
@pytest.mark.parametrize("back_after", [1.0, 60.0], ids=["back-soon", "back-late"])
def test_a_driver_that_is_away_when_its_class_becomes_an_embedded_drivers_takes_back_when_it_is_there(
    play: Any, kind: str, back_after: float
) -> None:
    """Nobody waits for it: the class may have been changed because it is gone for good."""

    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=SECONDS)
        await begin(world, disks)
        process = world.start_driver(disks)
        await add_user(world, kind)
        await until(lambda: disks.held)
        world.killed.add(process)
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        await edit(world, ShelfDriver.name)
        await asyncio.sleep(back_after)
        if back_after > 30:
            assert await world.node_of("p") != ""
        world.start_driver(disks)
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert disks.held == {}
        await nothing_is_marked_by(world, disks.name)
        assert len(world.ledger) == 1
        await ends(world, disks)

    play(scenario)


@kinds
@pytest.mark.parametrize("embedded_takes", [0, 10])
def test_a_record_that_comes_before_the_driver_hears_of_the_change_is_taken_back(
    play: Any, kind: str, embedded_takes: float
) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=3)
        behaviour = await begin(world, disks)
        behaviour.trouble = lambda _: asyncio.sleep(embedded_takes)
        watch = held_driver(world, disks)
        await add_user(world, kind)
        await until(lambda: disks.held)
        watch.open.clear()
        await edit(world, ShelfDriver.name)
        await asyncio.sleep(20)
        watch.open.set()
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert [holding.driver for holding in world.ledger] == [ShelfDriver.name]
        assert (behaviour.calls["allocate"], behaviour.calls["deallocate"], disks.held) == (1, 0, {})
        assert await world.events_on("p") == []
        await nothing_is_marked_by(world, disks.name)
        assert await asked(world) == ()
        await ends(world, disks)

    play(scenario)


@kinds
def test_a_record_that_the_controller_sees_late_is_taken_back(play: Any, kind: str) -> None:
    """The embedded driver has allocated before the controller sees it."""

    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=3)
        behaviour = await begin(world, disks)
        watch = held_driver(world, disks)
        await world.crash()
        seen = HeldWatch(world.server.client(), CLAIMS)
        world.start_parley(seen, drivers=[ShelfDriver(behaviour)])
        await add_user(world, kind)
        await until(lambda: disks.held)
        watch.open.clear()
        seen.open.clear()
        behaviour.trouble = lambda _: asyncio.sleep(6)
        await edit(world, ShelfDriver.name)
        await asyncio.sleep(10)
        seen.open.set()
        watch.open.set()
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert [holding.driver for holding in world.ledger] == [ShelfDriver.name]
        assert (behaviour.calls["allocate"], behaviour.calls["deallocate"], disks.held) == (1, 0, {})
        assert await world.events_on("p") == []
        await nothing_is_marked_by(world, disks.name)
        await ends(world, disks)

    play(scenario)


@kinds
def test_what_is_recorded_before_the_class_changes_counts(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"])
        behaviour = await begin(world, disks)
        world.start_driver(disks)
        await add_user(world, kind)
        await world.settle()
        await edit(world, ShelfDriver.name)
        await restart(world, [ShelfDriver(behaviour)])
        await world.settle(60)
        assert await world.node_of("p") in ("a", "b")
        assert (behaviour.calls["allocate"], len(disks.held)) == (0, 1)
        await ends(world, disks)

    play(scenario)


def test_of_a_pods_two_claims_the_one_whose_class_did_not_change_stays_with_its_driver(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks, tapes = Disks(["a", "b"], seconds=SECONDS), Tapes(["a", "b"], seconds=SECONDS)
        behaviour = await begin(world, disks)
        await world.add_class("tape", driverName=tapes.name)
        await world.add_template("tape", "tape")
        world.start_driver(disks)
        world.start_driver(tapes)
        await world.add_pod("p", "disk", "tape")
        await until(lambda: disks.held and tapes.held)
        await edit(world, ShelfDriver.name)
        await world.settle(60)
        assert await world.node_of("p") != ""
        assert behaviour.calls["allocate"] - behaviour.calls["deallocate"] == 1
        assert (len(disks.held), len(tapes.held)) == (0, 1)
        await nothing_is_marked_by(world, disks.name)
        await ends(world, disks, tapes)

    play(scenario)
