"""A copy of a driver that takes over: an earlier one's allocation that the network delivers late is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.late_writes import LateClient
from tests.unit.sdk.standalone.world import NAMESPACE, Array, ArrayDriver, LaggingClient, ShelfDriver, World

from parley.api.names import CONDITION_ALLOCATING
from parley.api.resources import CLAIMS
from parley.kube.client import ApiError, BadRequest, Call, Client, Forbidden, ServerError

Play = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


def allocates(call: Call) -> bool:
    return call.resource == CLAIMS and bool(((call.body or {}).get("status") or {}).get("allocation"))


def begins(call: Call) -> bool:
    return call.resource == CLAIMS and bool(((call.body or {}).get("metadata") or {}).get("annotations"))


async def cut_off(world: World, which: Callable[[Call], bool] = allocates) -> LateClient:
    """A copy dies while its write for the claim "first" is on its way."""
    client = LateClient(world.server.client("driver"), which, late=60.0)
    client.armed = True
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_claim("first")
    await world.add_claim("second")
    task = world.start(ShelfDriver(), client)
    await world.ask("pod", "first", nodes=["a"], selected="a")
    await client.given_up.wait()
    await world.kill(task)
    return client


def test_an_allocation_of_a_copy_that_was_cut_off_is_refused(play: Play) -> None:
    """This copy could not allocate it, and gave the disk to another claim since."""

    async def scenario(world: World) -> None:
        client = await cut_off(world)
        await world.set_disks("a", 0)
        driver = ShelfDriver()
        world.start(driver)
        await asyncio.sleep(5)
        await world.set_disks("a", 1)
        await world.ask("other", "second", nodes=["a"], selected="a")
        await world.settle()
        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        assert await world.recorded() == {(await world.claim("second")).metadata.uid: "a"}
        assert driver.free("a") == 0

    play(scenario)


class AfterIt(LaggingClient):
    """Takes over no claim before the late write has arrived. Its watches of claims are `lag` seconds behind."""

    only = CLAIMS

    def __init__(self, client: Client, late: LateClient, lag: float) -> None:
        super().__init__(client)
        self._late = late
        self.lag = lag

    async def request(self, call: Call) -> bytes:
        if call.resource == CLAIMS and call.verb == "patch":
            assert self._late.arrived is not None
            await asyncio.wait([self._late.arrived])
        return await super().request(call)


@pytest.mark.parametrize("lag", [0.0, 30.0])
def test_what_an_earlier_copy_wrote_at_the_last_moment_counts(play: Play, lag: float) -> None:
    async def scenario(world: World) -> None:
        client = await cut_off(world)
        driver = ShelfDriver()
        world.start(driver, AfterIt(world.server.client("driver"), client, lag))
        await world.ask("other", "second", nodes=["a"], selected="a")
        await world.settle()
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"
        assert await world.recorded() == {(await world.claim("first")).metadata.uid: "a"}
        assert list(driver.held) == [(await world.claim("first")).metadata.uid]

    play(scenario)


def test_a_beginning_that_arrives_late_holds_nothing_for_ever(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await cut_off(world, begins)
        await world.end("pod")
        await world.ask("other", "second", nodes=["a"], selected="a")
        world.start(ShelfDriver())
        await world.settle()
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"
        assert not (await world.claim("first")).metadata.finalizers
        assert await world.node_of("second") == "a"

    play(scenario)


def test_an_allocation_goes_on_where_it_was_begun_and_says_so(play: Play) -> None:
    async def scenario(world: World) -> None:
        array = Array({"a": 1, "b": 1})
        await world.add_node("a")
        await world.add_node("b")
        await world.add_class()
        await world.add_claim("disk", mode="Immediate")
        task = world.start(ArrayDriver(array))
        await asyncio.sleep(10)
        await world.kill(task)
        (begun,) = array.volumes.values()
        world.start(ArrayDriver(array))
        await asyncio.sleep(0.5)
        (condition,) = [c for c in (await world.claim("disk")).status.conditions if c.type == CONDITION_ALLOCATING]
        assert condition.status == "True"
        assert "another copy of the driver has continued it" in condition.message
        await world.settle()
        assert list(array.volumes.values()) == [begun]
        assert await world.node_of("disk") == begun[0]
        assert array.calls["deallocate"] == 0

    play(scenario)


class NotAllowed(Client):
    """May not write statuses of claims."""

    def __init__(self, client: Client, error: ApiError) -> None:
        super().__init__(client)
        self._error = error

    async def request(self, call: Call) -> bytes:
        if call.resource == CLAIMS and call.subresource == "status":
            raise self._error
        return await super().request(call)


@pytest.mark.parametrize(
    "error",
    [Forbidden(403, "Forbidden", "no"), BadRequest(400, "BadRequest", "a webhook denied the request")],
    ids=str,
)
def test_a_claim_that_cannot_be_changed_holds_nobody_up(play: Play, error: ApiError) -> None:
    async def scenario(world: World) -> None:
        await cut_off(world)
        world.start(ShelfDriver(), NotAllowed(world.server.client("driver"), error))
        await asyncio.sleep(5)
        assert world.runner is not None
        assert world.runner.ready.is_set()
        assert (await world.client.get(CLAIMS, "first", NAMESPACE)).status.allocation is None

    play(scenario)


def test_a_server_that_has_not_read_its_roles_yet_is_asked_again(play: Play) -> None:
    """Else what an earlier copy wrote late would count."""

    async def scenario(world: World) -> None:
        await cut_off(world)
        error = Forbidden(403, "Forbidden", 'User "disks" cannot patch resource "resourceclaims/status"')
        world.start(ShelfDriver(), NotAllowed(world.server.client("driver"), error))
        await asyncio.sleep(5)
        assert world.runner is not None
        assert not world.runner.ready.is_set()

    play(scenario)


def test_a_webhook_that_does_not_answer_holds_nobody_up_for_long(play: Play) -> None:
    """What arrives while the copy waits for the webhook counts like all that is recorded."""

    async def scenario(world: World) -> None:
        await cut_off(world)
        driver, error = ShelfDriver(), ServerError(500, "InternalError", "failed calling webhook")
        world.start(driver, NotAllowed(world.server.client("driver"), error))
        await asyncio.sleep(120)
        assert world.runner is not None
        assert world.runner.ready.is_set()
        first = await world.claim("first")
        assert first.status.allocation is not None
        assert list(driver.held) == [first.metadata.uid]

    play(scenario)
