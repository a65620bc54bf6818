"""A PodScheduling is written late, over newer writes: it asks a standalone driver what nobody wants any more."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.late_writes import LateClient, Which

from parley.api.names import FIELD_MANAGER
from parley.api.resources import CLASSES, POD_SCHEDULINGS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call
from parley.sdk import Allocation

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Counting(TokensDriver):
    """Counts how often it allocates."""

    times = 0

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        self.times += 1
        assert self.times < 100, "allocates in circles"
        return await super().allocate(request, node)


class Slow(Counting):
    """Takes its time."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(20)
        return await super().allocate(request, node)


def asks(call: Call) -> bool:
    spec = (call.body or {}).get("spec") or {}
    return call.resource == POD_SCHEDULINGS and bool(spec.get("claims"))


def selects(call: Call) -> bool:
    return asks(call) and bool(call.body and call.body["spec"].get("selectedNode"))


async def begin(
    world: World, late: float, which: Which = selects, driver: Counting | None = None
) -> tuple[LateClient, Counting]:
    """One seat on one node and a claim for it; the first selection is late, or `which` write of them."""
    await world.add_node("a")
    await world.add_class("seat", nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_claim("mine", "seat")
    client, driver = LateClient(world.server.client(), which, late), driver or Counting()
    client.armed = True
    world.start_parley(client)
    world.start_driver(driver)
    await world.settle()
    await world.add_pod("p", claims=["mine"])
    return client, driver


async def nothing_is_asked(world: World, client: LateClient) -> None:
    """The late write was accepted, and is of no effect any more."""
    assert client.arrived is not None
    assert client.arrived.result() == "accepted"
    assert (await world.scheduling("p")).spec.claims == ()
    assert (await world.claim("mine")).status.allocation is None
    assert len(world.ledger) == 0


def test_one_that_comes_while_the_pod_runs_is_taken_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        client, driver = await begin(world, late=4.0)
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.finish_pod("p")
        await world.settle(200)
        assert driver.times == 1
        await nothing_is_asked(world, client)

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_comes_when_the_pod_has_ended_is_taken_back(play: Any, restarted: bool) -> None:
    """Also if it is an earlier leader's."""

    async def scenario(world: World) -> None:
        client, driver = await begin(world, late=60.0)
        await asyncio.sleep(20)
        assert await world.node_of("p") == "a"
        if restarted:
            await world.crash()
            world.start_parley()
            await asyncio.sleep(5)
        await world.finish_pod("p")
        await asyncio.sleep(60)
        await world.settle(200)
        assert driver.times <= 2
        await nothing_is_asked(world, client)

    play(scenario)


def test_somebody_who_asks_again_and_again_is_not_served_as_often(play: Any) -> None:
    async def scenario(world: World) -> None:
        client, driver = await begin(world, late=4.0)
        await world.settle()
        await world.finish_pod("p")
        await world.settle()
        asked = [{"name": "mine", "driverName": TokensDriver.name, "resourceClaimName": "mine"}]
        body = {"spec": {"claims": asked, "selectedNode": "a"}}
        for _ in range(6000):
            await world.client.patch(POD_SCHEDULINGS, "p", body, "default", field_manager=FIELD_MANAGER)
            await asyncio.sleep(0.1)
        assert driver.times < 30
        await world.settle(200)
        await nothing_is_asked(world, client)

    play(scenario)


def test_a_driver_goes_on_to_allocate_though_the_question_comes_late(play: Any) -> None:
    """By the late write no node is selected any more, and the driver stops."""

    async def scenario(world: World) -> None:
        client, _ = await begin(world, late=10.0, which=asks, driver=Slow())
        await asyncio.sleep(9)
        assert (await world.scheduling("p")).spec.selected_node == "a"
        await asyncio.sleep(40)
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"
        assert await world.node_of("p") == "a"

    play(scenario)
