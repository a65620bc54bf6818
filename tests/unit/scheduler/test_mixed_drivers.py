"""Pods with claims of a driver in the controller and of a standalone one, of which the former need no answer any
more."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

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
