"""A standalone driver that can't answer a question says why with a reason code, which the pod gets."""

from typing import Any

import pytest
from tests.unit.scheduler.failing_drivers import BOTH, Failing

from parley.api import reasons
from parley.api.models import ClaimScheduling
from parley.api.resources import CLASSES
from parley.negotiation.answers import CannotAnswer
from parley.scheduler.entries import answer_of


async def with_standalone(world: Any, driver: Failing, **parameters: Any) -> None:
    """A node with devices from the controller's own driver, and seats from the standalone one."""
    await world.add_node("a", devices=2)
    await world.add_class()
    await world.add_template()
    await world.add_class("seats", driverName=driver.name, parameters={"pool": 3}, nodePart="None")
    await world.add_template("seat", "seats", **parameters)
    world.start_parley()
    world.start_driver(driver)


async def waits(world: Any) -> tuple[str, str]:
    status = (await world.scheduling("p")).status
    return status.waiting_for, status.message


@BOTH
def test_parameters_that_it_does_not_understand(play: Any) -> None:
    async def scenario(world: Any) -> None:
        await with_standalone(world, Failing(), count=1)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": "many"}})
        await world.add_pod("p", "seat", "one")
        await world.settle(quiet=1.0)
        code, message = await waits(world)
        assert code == reasons.PARAMETERS_INVALID
        assert message.startswith("claim gpu-0: parameters of class seats: pool='many'")
        assert "Remedy" not in message
        assert await world.events_on("p") == [(code, message)]
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 3}})
        await world.settle(quiet=10.0)
        assert await world.node_of("p") == "a"

    play(scenario)


@BOTH
def test_a_fault_of_its_own(play: Any) -> None:
    async def scenario(world: Any) -> None:
        driver = Failing("viable")
        await with_standalone(world, driver, count=1)
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        words = "claim gpu-0: driver tokens.parley.dev failed in viable: KeyError: 'viable'"
        assert await waits(world) == (reasons.DRIVER_FAILED, words)
        assert await world.events_on("p") == [(reasons.DRIVER_FAILED, words)]
        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("p") == "a"

    play(scenario)


@pytest.mark.parametrize("viable", [[], ["a"]], ids=str)
def test_whoever_names_viable_nodes_has_answered(viable: list[str]) -> None:
    entry = ClaimScheduling.model_validate(
        {
            "name": "seat",
            "driverName": "seats.example.com",
            "round": 1,
            "viableNodes": viable,
            "reason": "no licence",
            "waitingFor": "DriverFailed",
        }
    )
    failure = answer_of(entry, ("a",), {}).failure
    assert failure == (None if viable else CannotAnswer(reasons.DRIVER_FAILED, "no licence"))
