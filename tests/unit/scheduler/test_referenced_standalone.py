"""A standalone driver reads what `parametersRef` names with its own account; the controller reads nothing."""

import asyncio
from collections.abc import Callable

from tests.unit.scheduler.conftest import NAMESPACE, Scenario, World
from tests.unit.scheduler.references import (
    FORBIDDEN,
    Refusing,
    put_claim,
    put_class,
    put_size,
    put_template,
    said,
)

from parley.api import reasons
from parley.api.resources import CLAIMS, CONFIG_MAPS
from parley.drivers.tokens import TokensDriver

Play = Callable[[Scenario], None]


async def begun(world: World) -> Refusing:
    """The client of the driver."""
    controller, driver = Refusing(world), Refusing(world)
    driver.closed = False
    world.start_parley(controller, drivers=[])
    world.start_driver(TokensDriver(), driver)
    await world.add_node("node-1")
    await put_class(world)
    return driver


async def counts(world: World) -> list[int]:
    claims = (await world.client.list(CLAIMS, NAMESPACE)).items
    records = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    return sorted(record.handles[0].data["count"] for record in records if record.handles[0].data)


def test_it_answers_by_what_it_read_and_keeps_what_it_allocated(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_size(world, "count: 3")
        await put_template(world)
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "node-1"
        await world.client.patch(CONFIG_MAPS, "size", {"data": {"parameters": "count: 1"}}, NAMESPACE)
        await world.add_pod("q", "one")
        await world.settle()
        assert await counts(world) == [1, 3]
        assert world.controller is not None
        assert len(world.controller.references) == 0

    play(scenario)


def test_its_answer_names_what_is_missing_or_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = await begun(world)
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(20)
        code, message = await said(world, "p")
        assert code == reasons.PARAMETERS_NOT_FOUND
        assert message.startswith("claim gpu-0: parametersRef of claim default/")
        assert "Remedy" not in message
        assert "ConfigMap default/size does not exist: create it" in message
        driver.closed = True
        await asyncio.sleep(120)
        code, message = await said(world, "p")
        assert code == reasons.PARAMETERS_FORBIDDEN
        assert FORBIDDEN in message
        assert len(driver.reads) < 20
        driver.closed = False
        await put_size(world, "count: 2")
        await asyncio.sleep(75)
        assert await world.node_of("p") == "node-1"
        assert await counts(world) == [2]

    play(scenario)


def test_what_it_does_not_understand_is_read_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_size(world, "count: s3cret")
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(60)
        message = (await said(world, "p"))[1]
        assert "in ConfigMap default/size: count: input should be a valid integer" in message
        assert "s3cret" not in message
        await world.client.patch(CONFIG_MAPS, "size", {"data": {"parameters": "count: 4"}}, NAMESPACE)
        await asyncio.sleep(75)
        assert await counts(world) == [4]

    play(scenario)


def test_an_immediate_claim_waits_for_what_it_names(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_claim(world, allocationMode="Immediate")
        await asyncio.sleep(60)
        conditions = (await world.claim("mine")).status.conditions
        shown = {c.reason: c.message for c in conditions}
        assert shown[reasons.PARAMETERS_NOT_FOUND] == (
            "parametersRef of claim default/mine: ConfigMap default/size does not exist: create it"
        )
        await put_size(world, "count: 2")
        await asyncio.sleep(61)
        assert await counts(world) == [2]

    play(scenario)
