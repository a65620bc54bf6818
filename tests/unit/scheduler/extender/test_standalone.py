"""Standalone drivers at this path: asked about the scheduler's candidates, in the background."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.conftest import AWAY

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.kube.client import OutcomeUnknown, ServerError
from parley.sdk import Allocation, Answer, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


async def begin(world: World, *, tokens: int, driver: TokensDriver | None = None) -> None:
    """Three nodes with two devices each, and a driver of tokens outside."""
    for node in ("a", "b", "c"):
        await world.add_node(node, devices=2)
    await world.add_class()
    await world.add_template()
    pool = {"driverName": TokensDriver.name, "nodePart": "None", "parameters": {"pool": tokens}}
    await world.add_class("licence", **pool)
    await world.add_template("licence", "licence")
    world.start_parley()
    world.start_driver(driver or TokensDriver())
    await world.settle()


def test_a_pod_is_bound_where_drivers_inside_and_outside_allocated(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, tokens=1)
        await world.add_pod("p", "one", "licence")
        await world.settle()
        node = await world.node_of("p")
        assert node
        assert (await world.scheduling("p")).spec.selected_node == node
        assert all(mirror.status.allocation is not None for mirror in await world.mirrors())
        assert (await world.events_on("p")) == []

    play(scenario)


def test_a_pod_gets_in_when_the_driver_outside_has_room_again_and_its_scheduler_is_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, tokens=1)
        await world.add_pod("first", "licence")
        await world.settle()
        await world.add_pod("second", "one", "licence")
        await world.settle()
        assert await world.node_of("second") == ""
        assert (await world.scheduling("second")).status.waiting_for == "NothingViable"
        await world.delete_pod("first")
        await world.settle()
        assert await world.node_of("second")

    play(scenario)


def test_a_driver_that_does_not_run_is_named_and_nobody_else_waits(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, tokens=1)
        await world.add_class("far", driverName="far.example.com")
        await world.add_template("far", "far")
        await world.add_pod("lost", "far")
        await world.add_pod("fine", "one")
        await world.settle(60)
        assert await world.node_of("fine")
        assert await world.node_of("lost") == ""
        scheduling = await world.scheduling("lost")
        assert scheduling.status.waiting_for == "DriverNotAnswering"
        assert "far.example.com" in scheduling.status.message
        calls = world.calls.count["filter"]
        await world.settle(600)
        assert world.calls.count["filter"] == calls

    play(scenario)


class NotEverywhere(TokensDriver):
    """Tokens are of no use on node "a"."""

    def viable(self, request: Request[Wanted, Pool], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return {claim.name: Answer(tuple(n for n in nodes if n != "a"), None, {}) for claim in request.claims}


def test_drivers_are_asked_about_nodes_that_the_scheduler_proposes_only_later(play: Any) -> None:
    """Its own filters may have rejected them for what Parley does not look at. No driver proposes other nodes:
    each finds one viable."""

    async def scenario(world: World) -> None:
        await begin(world, tokens=1, driver=NotEverywhere())
        await world.add_node("without")
        await world.add_pod("p", "one", "licence", schedulerName=AWAY)
        await world.settle()
        for nodes in (["a", "without"], ["a", "b", "without"]):
            assert not (await world.ask("filter", await world.question("p", *nodes)))["NodeNames"]
            await world.settle()
        assert (await world.scheduling("p")).spec.selected_node == "b"

    play(scenario)


class Slow(TokensDriver):
    """Takes its time."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(20)
        return await super().allocate(request, node)


def test_what_was_allocated_on_a_node_that_the_scheduler_refuses_by_then_is_given_back_and_another_is_found(
    play: Any,
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, tokens=2, driver=Slow())
        await cordon(world, a=True, b=True, c=False)
        await world.settle()
        await world.add_pod("p", "one", "licence")
        await asyncio.sleep(10)
        assert (await world.scheduling("p")).spec.selected_node == "c"
        await cordon(world, a=False, b=True, c=True)
        await world.settle(60)
        assert await world.node_of("p") == "a"
        assert {pool for pool, _ in await world.devices()} <= {"a", "parley.dev"}

    play(scenario)


async def cordon(world: World, **nodes: bool) -> None:
    for node, cordoned in nodes.items():
        await world.client.patch(NODES, node, {"spec": {"unschedulable": cordoned}})


@pytest.mark.parametrize("arrives", [True, False])
def test_a_pod_is_not_bound_with_what_its_driver_may_be_deallocating(play: Any, arrives: bool) -> None:
    """What the pod holds can't be recorded and is taken back, and the answer to that is lost."""

    async def scenario(world: World) -> None:
        refused, lost = [False], [False]

        def refuse(call: NumberedCall) -> None:
            if call.resource == BUILTIN_CLAIMS and _status(call).get("allocation") and not refused[0]:
                refused[0] = True
                raise ServerError(500, "InternalError", "the webhook is away")
            if not arrives:
                lose(call)

        def lose(call: NumberedCall) -> None:
            if call.resource == CLAIMS and _status(call).get("deallocationRequested") and not lost[0]:
                lost[0] = True
                raise OutcomeUnknown("connection lost")

        await world.add_node("a")
        await world.add_class("seat", driverName=TokensDriver.name, nodePart="None", parameters={"pool": 1})
        await world.add_template("seat", "seat")
        world.start_parley(FaultClient(world.server.client(), before=refuse, after=lose))
        world.start_driver(TokensDriver())
        await world.settle()
        await world.add_pod("p", "seat")
        await asyncio.sleep(0.5)
        await world.add_pod("q", "seat")
        await world.settle(300)
        assert lost[0]
        running = [name for name in ("p", "q") if (await world.pod(name)).status.phase == "Running"]
        recorded = [claim for claim in (await world.client.list(CLAIMS)).items if claim.status.allocation]
        assert (len(running), len(recorded)) == (1, 1)

    play(scenario)


def _status(call: NumberedCall) -> Any:
    return (call.body or {}).get("status") or {}


class FailsFirst(TokensDriver):
    """Takes its time, and fails to allocate once."""

    failed = False

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(20)
        if not self.failed:
            self.failed = True
            raise RuntimeError("out of order")
        return await super().allocate(request, node)


def test_a_class_becomes_shareable_while_its_driver_fails_to_allocate_a_named_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        driver = FailsFirst()
        await begin(world, tokens=2, driver=driver)
        await world.add_claim("seat", "licence")
        await world.settle()
        await world.add_pod("p", claims=["seat"], schedulerName=AWAY)
        await asyncio.sleep(1)
        await world.ask("filter", await world.question("p", "a"))
        await asyncio.sleep(10)
        await world.client.patch(CLASSES, "licence", {"shareable": True})
        await asyncio.sleep(1)
        for _ in range(3):
            await world.ask("filter", await world.question("p", "a"))
            await asyncio.sleep(60)
        assert driver.failed
        assert (await world.ask("filter", await world.question("p", "a")))["NodeNames"] == ["a"]

    play(scenario)


def test_a_shared_claim_is_there_for_others_though_its_first_pod_is_not_bound_yet(play: Any) -> None:
    """Its scheduler may take long to bind it, and what was allocated for it is kept for five minutes."""

    async def scenario(world: World) -> None:
        await begin(world, tokens=1)
        await world.client.patch(CLASSES, "licence", {"shareable": True})
        await world.add_claim("common", "licence", count=1)
        await world.settle(5)
        await world.add_pod("first", claims=["common"], schedulerName="asleep")
        await asyncio.sleep(20)
        await world.add_pod("second", claims=["common"])
        await asyncio.sleep(20)
        assert await world.node_of("second")

    play(scenario)


def test_a_mirror_that_is_deleted_before_its_allocated_claim_is_reserved_is_made_again(play: Any) -> None:
    """The claim is allocated for a pod about which its scheduler has not asked again yet."""

    async def scenario(world: World) -> None:
        await begin(world, tokens=1)
        await world.add_claim("mine", "licence")
        await world.add_pod("p", claims=["mine"], schedulerName=AWAY)
        await asyncio.sleep(1)
        assert not (await world.ask("filter", await world.question("p", "a", "b", "c")))["NodeNames"]
        await asyncio.sleep(5)
        claim = await world.claim("mine")
        assert claim.status.allocation is not None
        assert not claim.status.reserved_for
        await world.client.delete(BUILTIN_CLAIMS, "mine", "default")
        await asyncio.sleep(5)
        mirror = await world.mirror("mine")
        assert mirror is not None
        assert mirror.metadata.deletion_timestamp is None
        assert (await world.ask("filter", await world.question("p", "a", "b", "c")))["NodeNames"]

    play(scenario)
