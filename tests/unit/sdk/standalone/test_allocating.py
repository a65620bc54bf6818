"""An allocation: the driver, the record, writes that fail or are lost, and how far it is."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.conditions import condition
from tests.support.faults import FaultClient, NumberedCall
from tests.support.late_writes import LateClient
from tests.unit.sdk.standalone.world import (
    DRIVER,
    NAMESPACE,
    Array,
    ArrayDriver,
    Disks,
    LaggingClient,
    ShelfDriver,
    World,
    prepare,
    progress,
)

from parley.api.names import driver_annotation, driver_finalizer
from parley.api.resources import CLAIMS
from parley.kube.client import Call, Forbidden, Invalid, OutcomeUnknown, ServerError
from parley.sdk import Allocation, Device, NoParameters, Request

Play = Callable[[Callable[[World], Any]], None]


def test_all_claims_are_allocated_and_recorded(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "one", "two", shareable=True)
        driver = ShelfDriver()
        client = FaultClient(world.server.client())
        world.start(driver, client)
        await world.ask("pod", "one", "two", nodes=["a"])
        await world.settle()
        await world.select("pod", "a")
        await world.settle()

        for name in ("one", "two"):
            claim = await world.claim(name)
            assert claim.metadata.finalizers == (driver_finalizer(DRIVER),)
            assert (claim.status.driver_name, condition(claim, "Allocated").status) == (DRIVER, "True")
            assert claim.status.allocation is not None
            assert claim.status.allocation.shareable
            (handle,) = claim.status.allocation.handles
            assert (handle.driver_name, handle.data) == (DRIVER, {"size": 1})
            assert await world.node_of(name) == "a"
            assert driver.held[claim.metadata.uid] == ("a", 1)
            assert await progress(world, name) is None
        assert client.writes == 1 + 2 + 2

    play(scenario)


def test_what_was_written_is_known_before_the_watch_tells(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "one", "two")
        driver = ShelfDriver()
        client = LaggingClient(world.server.client())
        world.start(driver, client)
        await world.ask("pod", "one", "two", nodes=["a"], selected="a")
        await world.settle()
        assert client.writes == 2 + 2
        await world.end("pod")
        await world.take_back("one")
        await world.settle()

        assert client.writes == 4 + 2
        assert list(driver.held) == [(await world.claim("two")).metadata.uid]

    play(scenario)


class Everywhere(ShelfDriver):
    """Names what it allocated, and where else it may be used."""

    where: tuple[str, ...] | None = None

    async def allocate(self, request: Any, node: str) -> Any:
        await super().allocate(request, node)
        return {c.name: Allocation((Device("p", "d"),), {}, self.where) for c in request.claims}


def test_what_can_be_used_everywhere_or_on_several_nodes_says_so(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "one", "two")
        driver = Everywhere()
        world.start(driver)
        await world.ask("pod", "one", selected="a")
        await world.settle()
        driver.where = ("a", "b")
        await world.ask("other", "two", selected="b")
        await world.settle()

        one, two = [(await world.claim(name)).status.allocation for name in ("one", "two")]
        assert one is not None
        assert one.available_on_nodes is None
        assert [(d.pool, d.device) for d in one.handles[0].devices] == [("p", "d")]
        assert two is not None
        assert two.available_on_nodes is not None
        assert [t.match_fields[0].values for t in two.available_on_nodes.node_selector_terms] == [("b",), ("a",)]

    play(scenario)


def test_progress_is_reported_every_five_seconds_and_ends_with_the_allocation(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        client = FaultClient(world.server.client())
        world.start(ArrayDriver(array), client)
        await world.ask("pod", "disk", selected="a")
        await asyncio.sleep(12.5)
        seen = await progress(world, "disk")
        assert seen is not None
        assert (seen.status, seen.reason) == ("True", "InProgress")
        assert seen.message in ("attached for 9 s", "attached for 10 s")
        await world.settle()

        ended = await progress(world, "disk")
        assert ended is not None
        assert (ended.status, ended.reason, ended.message) == ("False", "Done", "")
        reported = [c for c in client.calls if c.subresource == "status" and "allocation" not in c.body["status"]]
        assert len(reported) in (4, 5)
        assert await world.node_of("disk") == "a"

    play(scenario)


def test_other_conditions_stay(play: Play, array: Array) -> None:
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "fine"}

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ArrayDriver(array))
        await world.ask("pod", "disk", selected="a")
        await asyncio.sleep(3)
        known = (await world.claim("disk")).status.conditions
        theirs = {**accepted, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {"status": {"conditions": [theirs, *(c.wire() for c in known)]}}
        await world.client.patch(CLAIMS, "disk", body, NAMESPACE, subresource="status")
        await world.settle()

        types = {c.type: c.reason for c in (await world.claim("disk")).status.conditions}
        assert types == {"Accepted": "Accepted", "Allocating": "Done", "Allocated": "Allocated", "Ready": "Ready"}

    play(scenario)


def test_an_allocation_that_takes_too_long_is_given_up(play: Play, array: Array) -> None:
    array.seconds = 1000

    async def scenario(world: World) -> None:
        await prepare(world, "disk", "other", allocationTimeoutSeconds=600)
        await world.add_class("hasty", allocationTimeoutSeconds=30)
        await world.add_claim("hasty", "hasty")
        array.stock["b"] = 2
        world.start(ArrayDriver(array))
        await world.ask("pod", "disk", "hasty", nodes=["b"], selected="b")
        await asyncio.sleep(35)

        failure = (await world.answers("pod"))["disk"].failure
        assert failure is not None
        assert failure.message == "nothing was allocated within the 30 s of allocationTimeoutSeconds"
        assert not failure.permanent
        assert array.volumes == {}

    play(scenario)


class TooMuch(ShelfDriver):
    """Allocates what no API server takes."""

    async def allocate(self, request: Any, node: str) -> Any:
        await super().allocate(request, node)
        return {c.name: Allocation(data={"x": "y" * 20_000}) for c in request.claims}


def test_a_driver_at_fault_holds_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        driver = TooMuch()
        world.start(driver)
        await world.ask("pod", "disk", selected="a")
        await world.settle()

        failure = (await world.answer("pod")).failure
        assert failure is not None
        assert "at most 10240 are allowed" in failure.message
        assert driver.held == {}

    play(scenario)


def test_an_allocation_that_the_api_server_refuses_is_given_back(play: Play) -> None:
    def refuse(call: NumberedCall) -> None:
        if call.subresource == "status" and "allocation" in call.body["status"]:
            raise Invalid(422, "Invalid", "status.allocation: no")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        driver = ShelfDriver()
        world.start(driver, FaultClient(world.server.client(), before=refuse))
        await world.ask("pod", "disk", selected="a")
        await world.settle()

        failure = (await world.answer("pod")).failure
        assert failure is not None
        assert failure.message == "the API server refused the allocation: status.allocation: no"
        assert driver.held == {}

    play(scenario)


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("cleared", [True, False])
def test_a_write_of_unknown_outcome_is_looked_after(play: Play, happened: bool, cleared: bool) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        lost: list[NumberedCall] = []

        def lose(call: NumberedCall) -> None:
            if call.subresource == "status" and not lost:
                lost.append(call)
                if cleared:
                    asyncio.get_running_loop().create_task(world.select("pod", ""))
                raise OutcomeUnknown("the connection was lost")

        hook = {"after" if happened else "before": lose}
        driver = ShelfDriver()
        world.start(driver, FaultClient(world.server.client(), **hook))
        await world.ask("pod", "disk", selected="a")
        await world.settle()

        assert lost
        assert {uid: node for uid, (node, _) in driver.held.items()} == await world.recorded()
        assert len(driver.held) == (1 if happened or not cleared else 0)

    play(scenario)


def test_a_write_that_was_lost_can_not_happen_after_the_driver_gave_back(play: Play) -> None:
    """The write hangs in a gateway, and arrives when the selection is long cleared."""

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        hanging: list[NumberedCall] = []

        def hang(call: NumberedCall) -> None:
            if call.subresource == "status" and not hanging:
                hanging.append(call)
                asyncio.get_running_loop().create_task(world.select("pod", ""))
                raise OutcomeUnknown("no answer")

        driver = ShelfDriver()
        world.start(driver, FaultClient(world.server.client(), before=hang))
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        (call,) = hanging
        with pytest.raises(Exception, match="the object has been modified"):
            await world.client.patch(CLAIMS, call.name, call.body, NAMESPACE, subresource="status")

        assert driver.held == {}

    play(scenario)


class SilentDriver(ArrayDriver):
    """Reports no progress, so that it writes nothing while it allocates."""

    async def allocate(self, request: Request[Disks, NoParameters], node: str) -> Mapping[str, Allocation]:
        return await super().allocate(replace(request, progress=lambda _: None), node)


def removes_finalizers(call: Call) -> bool:
    return call.resource == CLAIMS and call.verb == "patch" and call.body["metadata"].get("finalizers", "") is None


def test_a_finalizer_that_is_removed_late_is_set_again_before_the_allocation_is_recorded(
    play: Play, array: Array
) -> None:
    """Without it the claim could go while the driver is away, which would then never deallocate."""

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        client = LateClient(world.server.client("driver"), removes_finalizers)
        world.start(SilentDriver(array), client)
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        await world.select("pod", "")
        client.armed = True
        await world.take_back("disk")
        await client.given_up.wait()
        await world.select("pod", "a")
        await world.settle()
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"

        claim = await world.claim("disk")
        assert claim.status.allocation is not None
        assert claim.metadata.finalizers == (driver_finalizer(DRIVER),)
        assert claim.metadata.annotations == {driver_annotation(DRIVER): "a"}

    play(scenario)


def begins(call: NumberedCall) -> bool:
    """Whether the call sets the finalizer."""
    return call.resource == CLAIMS and call.write > 0 and not call.subresource


def test_a_driver_that_may_not_begin_says_so(play: Play) -> None:
    def refuse(call: NumberedCall) -> None:
        if begins(call):
            raise Forbidden(403, "Forbidden", "finalizers: not yours")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        driver = ShelfDriver()
        client = FaultClient(world.server.client(), before=refuse)
        world.start(driver, client)
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        failure = (await world.answer("pod")).failure
        assert failure is not None
        said = "the API server refused the finalizer of the claim: finalizers: not yours"
        assert (failure.node_name, failure.message, failure.permanent) == ("a", said, False)
        assert driver.held == {}

        before = len(list(filter(begins, client.calls)))
        await world.add_claim("prompt", mode="Immediate")
        await asyncio.sleep(3)
        tried = [call.body["metadata"]["annotations"] for call in filter(begins, client.calls)][before:]
        assert tried[0] == tried[1] == tried[2]  # not on one node after the other
        shown = {one.type: one for one in (await world.claim("prompt")).status.conditions}
        assert shown["Allocated"].reason == "AllocationFailed"
        assert shown["Allocated"].message.endswith(said)

    play(scenario)


def test_a_driver_begins_when_the_api_server_lets_it_a_moment_later(play: Play) -> None:
    refused: list[NumberedCall] = []

    def refuse(call: NumberedCall) -> None:
        if begins(call) and len(refused) < 2:
            refused.append(call)
            raise Forbidden(403, "Forbidden", "finalizers: not yours")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ShelfDriver(), FaultClient(world.server.client(), before=refuse))
        await world.ask("pod", "disk", selected="a")
        await asyncio.sleep(5)
        assert await world.node_of("disk") == "a"

    play(scenario)


def test_what_the_api_server_fails_at_is_tried_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        driver = ShelfDriver()
        refused: list[float] = []

        def fail(call: NumberedCall) -> None:
            if call.write and len(refused) < 8:
                refused.append(asyncio.get_running_loop().time())
                raise ServerError(500, "InternalError", "not now")

        world.start(driver, FaultClient(world.server.client(), before=fail))
        await world.ask("pod", "disk", selected="a")
        await world.settle()

        assert await world.node_of("disk") == "a"
        assert len(driver.held) == 1
        pauses = [later - earlier for earlier, later in pairwise(refused)]
        assert all(pause > 0.05 for pause in pauses)
        assert max(pauses) > 3

    play(scenario)
