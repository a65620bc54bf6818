"""Classes whose `driverName` is changed while a standalone driver of theirs is asked, or allocates, for a pod.

Who is not the class's driver any more takes back what it began; what it has recorded by then counts.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, restart
from tests.unit.scheduler.test_standalone import Disks

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS
from parley.kube.client import NotFound, OutcomeUnknown
from parley.sdk.recorded import driver_of_record

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

SECONDS = 40.0
"""So long the disks are attached."""

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
    """It is so."""
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
    """With the pod everything is given back."""
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


def held_driver(world: World, disks: Disks) -> HeldWatch:
    """The driver runs; what it sees of PodSchedulings can be held back."""
    watch = HeldWatch(world.server.client(), POD_SCHEDULINGS)
    world.start_driver(disks, watch)
    return watch


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
