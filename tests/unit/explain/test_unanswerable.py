"""Answers of standalone drivers that name no node, and those that say only why the driver can't answer."""

import pytest
from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import ShelfDriver, add_shelf_class

from parley.api.models import ClaimScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.explain.remedies import ADVICE


async def asked(world: World) -> None:
    """A pod wants a device of its node, and something of a driver that is asked about the node."""
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    await add_shelf_class(world)
    await world.add_pod("wants", "one", "shelf")
    await world.settle()


async def answered(world: World, **answer: object) -> None:
    """The driver gives this answer."""
    await asked(world)
    entry = {"name": "gpu-1", "driverName": ShelfDriver.name, "round": 1, "alternatives": {"nodes": []}, **answer}
    body = {"status": {"claims": [entry]}}
    await world.client.patch(POD_SCHEDULINGS, "wants", body, "default")
    await world.settle(5)


@pytest.mark.parametrize("code", ["ParametersInvalid", "ParametersForbidden", "DriverFailed"])
def test_a_driver_that_cannot_answer_is_shown_with_its_code_and_proposes_nothing(play: Play, code: str) -> None:
    async def scenario(world: World) -> None:
        await answered(world, waitingFor=code, reason="shelf height=-1: must be positive")

        told = await explained(world, "wants")

        assert (told.code, told.message) == (code, "claim gpu-1: shelf height=-1: must be positive")
        (row,) = told.nodes
        assert [(cell.viable, cell.why) for cell in row.claims] == [(True, ""), (None, code)]
        assert row.verdict == "unknown"
        assert helps(told) == [ADVICE[code]]

    play(scenario)


def test_an_answer_that_names_no_node_is_about_each_that_was_asked_about(play: Play) -> None:
    async def scenario(world: World) -> None:
        await answered(world, reason="no licence")

        told = await explained(world, "wants")

        assert told.code == "NothingViable"
        assert [(cell.viable, cell.why) for cell in told.nodes[0].claims] == [(True, ""), (False, "no licence")]
        assert "driver shelf.example.com, for claim gpu-1: no other node is viable either" in helps(told)

    play(scenario)


def test_nodes_that_came_later_were_not_asked_about(play: Play) -> None:
    async def scenario(world: World) -> None:
        await asked(world)
        await world.add_node("b", 1)

        told = await explained(world, "wants")

        cells = {row.node: row.claims[1].why for row in told.nodes}
        assert cells == {"a": "not answered", "b": "not asked"}

    play(scenario)


@pytest.mark.parametrize("code", [None, "DriverFailed"])
def test_why_a_driver_cannot_answer_is_an_answer(code: str | None) -> None:
    entry = ClaimScheduling.model_validate(
        {"name": "x", "driverName": "d.example.com", "round": 1, "waitingFor": code}
    )
    assert entry.says_anything == (code is not None)
