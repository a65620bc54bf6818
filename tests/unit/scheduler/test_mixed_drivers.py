"""Pods with claims of a driver in the controller and of a standalone one, of which the former need no answer any
more."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import CLASSES
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_the_question_goes_on_without_the_claim_that_another_pod_was_allocated(play: Any) -> None:
    """The controller's only entry leaves the list of answers, in which nobody else has one."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        pool = {"driverName": TokensDriver.name, "nodePart": "None", "parameters": {"pool": 1}}
        await world.add_class("seats", shareable=True, **pool)
        await world.add_template("t", "far")
        await world.add_claim("seat", "seats")
        world.start_parley(drivers=[TokensDriver()])
        await world.add_pod("p", "t", claims=["seat"])
        await asyncio.sleep(5)
        assert (await world.scheduling("p")).status.waiting_for == "ClassNotFound"
        await world.add_class("far", driverName="far.example.com")
        await asyncio.sleep(5)
        assert [entry.name for entry in (await world.scheduling("p")).status.claims] == ["seat"]

        await world.add_pod("other", claims=["seat"])
        await asyncio.sleep(60)
        assert await world.node_of("other") == "a"
        scheduling = await world.scheduling("p")
        assert [claim.name for claim in scheduling.spec.claims] == ["gpu-0"]
        assert not scheduling.status.claims
        assert {reason for reason, _ in await world.events_on("p")} == {"ClassNotFound", "DriverNotAnswering"}

        await world.client.patch(CLASSES, "far", pool)
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_class_that_goes_to_the_controller_and_back(play: Any) -> None:
    """In between the controller empties the list of what they are asked, by another kind of write."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        pool = {"driverName": TokensDriver.name, "nodePart": "None", "parameters": {"pool": 1}}
        await world.add_class("far", **pool)
        await world.add_template("t", "far")
        world.start_parley(drivers=[DeviceDriver()])
        await world.add_pod("p", "t")
        await asyncio.sleep(5)
        await world.client.patch(CLASSES, "far", {"driverName": DeviceDriver.name})
        await asyncio.sleep(5)
        scheduling = await world.scheduling("p")
        assert (scheduling.status.waiting_for, scheduling.spec.claims) == ("ParametersInvalid", ())
        await world.client.patch(CLASSES, "far", {"driverName": TokensDriver.name})
        await asyncio.sleep(5)
        assert [claim.name for claim in (await world.scheduling("p")).spec.claims] == ["gpu-0"]

        world.start_driver(TokensDriver())
        await world.settle()
        assert await world.node_of("p") == "a"
        scheduling = await world.scheduling("p")
        assert (scheduling.spec.claims, scheduling.status.waiting_for) == ((), "")
        assert "WriteRefused" not in {reason for reason, _ in await world.events_on("p")}

    play(scenario)


async def begin(world: World, disks: Disks, shelf: Behaviour, claims: int, *, placed: bool = False) -> None:
    """Pods `p` and `q` want a place of the driver in the controller and a disk of the standalone one; of disks the
    namespace may have so many. `placed`: whoever created the pods chose their nodes."""
    for node in "abc":
        await world.add_node(node)
    await add_shelf_class(world)
    await world.add_class("disk", driverName=disks.name, limits=[{"claims": claims}])
    await world.add_template("disk", "disk")
    world.start_parley(drivers=[ShelfDriver(shelf)])
    world.start_driver(disks)
    await world.settle()
    for name, node in (("p", "a"), ("q", "b")):
        await world.add_pod(name, "shelf", "disk", **({"nodeName": node} if placed else {}))


async def running(world: World) -> int:
    return sum([(await world.pod(name)).status.phase == "Running" for name in ("p", "q")])


@pytest.mark.parametrize("takes", [0, 60])
def test_pods_whose_drivers_in_the_controller_take_long_are_no_more_than_the_limit_of_a_standalone_one(
    play: Any, takes: float
) -> None:
    async def scenario(world: World) -> None:
        disks, most = Disks("abc", seconds=takes), 0
        await begin(world, disks, Behaviour(other=9, trouble=slow(20)), claims=1)
        for _ in range(100):
            await asyncio.sleep(2)
            most = max(most, len(disks.held))
        assert most == 1
        assert await running(world) == 1

    play(scenario)


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("raised", [False, True])
def test_when_a_limit_is_lowered_while_a_standalone_driver_allocates_those_within_it_run(
    play: Any, raised: bool, placed: bool
) -> None:
    async def scenario(world: World) -> None:
        disks, shelf = Disks("abc", seconds=60), Behaviour(other=9)
        await begin(world, disks, shelf, claims=2, placed=placed)
        await asyncio.sleep(20)
        assert len(disks.held) == 2
        await world.client.patch(CLASSES, "disk", {"limits": [{"claims": 0 if raised else 1}]})
        await asyncio.sleep(20)
        if raised:
            assert placed or not len(world.ledger)  # a pod on a node may be using what it holds
            await world.client.patch(CLASSES, "disk", {"limits": [{"claims": 1}]})
        await asyncio.sleep(200)
        assert await running(world) == 1
        assert len(disks.held) == 1

    play(scenario)


def test_a_node_of_an_earlier_question_is_asked_about_again_when_an_embedded_driver_has_freed_what_it_lacked(
    play: Any,
) -> None:
    """Each driver finds a node of the latest question viable, so that neither proposes others."""

    async def scenario(world: World) -> None:
        await prepare(world, Disks("bd"), nodes="b")
        await world.add_pod("other", "one")
        await world.settle()
        await world.add_pod("p", "one", "disk")
        await world.settle()
        await world.add_node("c", devices=1)
        await world.add_node("d")
        await world.settle()
        assert await world.node_of("p") == ""
        await world.delete_pod("other")
        await world.settle(60)
        assert await world.node_of("p") == "b"

    play(scenario)
