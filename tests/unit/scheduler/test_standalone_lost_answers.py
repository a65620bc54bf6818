"""The answer to the write that asks a standalone driver to deallocate is lost: it was done, or is late, or is not.

The driver deallocates as soon as it reads the request. Until the controller knows whether it was asked, nobody
comes to use the claim.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.support.late_writes import LateClient

from parley.api.resources import CLAIMS, CLASSES
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Client, OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def asks(call: Call) -> bool:
    return call.resource == CLAIMS and bool((call.body or {}).get("status", {}).get("deallocationRequested"))


def losing(world: World, way: str) -> tuple[Client, Callable[[], bool]]:
    """A client that gets no answer to its first request to deallocate, which arrives all the same, is lost, or is
    late; to three of them if they arrive `thrice`. And whether that has happened."""
    if way == "late":
        late = LateClient(world.server.client(), asks)
        late.armed = True
        return late, late.given_up.is_set
    left = 3 if way == "thrice" else 1

    def lose(call: NumberedCall) -> None:
        nonlocal left
        if asks(call) and left:
            left -= 1
            raise OutcomeUnknown("connection lost")

    fault = {"before": lose} if way == "lost" else {"after": lose}
    return FaultClient(world.server.client(), **fault), lambda: left < (3 if way == "thrice" else 1)


async def begin(world: World, client: Client) -> TokensDriver:
    """One seat on one node, and a claim for it."""
    await world.add_node("a")
    await world.add_class("seat", nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_claim("mine", "seat")
    world.start_parley(client)
    driver = TokensDriver()
    world.start_driver(driver)
    await world.settle()
    return driver


@pytest.mark.parametrize("way", ["arrives", "thrice", "lost", "late"])
@pytest.mark.parametrize("end", ["finished", "deleted"])
def test_a_claim_is_free_again_for_the_next_pod(play: Any, way: str, end: str) -> None:
    async def scenario(world: World) -> None:
        client, lost = losing(world, way)
        await begin(world, client)
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        assert await world.node_of("p") == "a"
        await (world.finish_pod if end == "finished" else world.delete_pod)("p")
        await world.settle(200)
        assert lost()
        assert (await world.claim("mine")).status.allocation is None
        assert len(world.ledger) == 0
        await world.add_pod("q", claims=["mine"])
        await world.settle(200)
        assert await world.node_of("q") == "a"
        assert len(world.ledger) == 1

    play(scenario)


@pytest.mark.scheduling_paths("native")  # at the other path a pod has joined by then
@pytest.mark.parametrize("way", ["arrives", "lost", "late"])
def test_what_was_allocated_for_a_pod_that_is_gone_by_then_is_free_for_others(play: Any, way: str) -> None:
    """Nobody has used the claim, so that no pod's end brings it back to mind."""

    async def scenario(world: World) -> None:
        client, lost = losing(world, way)
        driver = await begin(world, client)
        allocated = asyncio.Event()
        world.watch_claims(lambda claim: allocated.set() if claim.status.allocation else None)
        await world.add_pod("p", claims=["mine"])
        await allocated.wait()
        await world.force_delete("p")
        await world.settle(200)
        assert lost()
        assert (len(driver._held), len(world.ledger)) == (0, 0)

    play(scenario)


class SlowAnswer(FaultClient):
    """The first request to deallocate is answered only when the driver has met it, and has allocated again."""

    def __init__(self, world: World) -> None:
        super().__init__(world.server.client())
        self.world = world
        self.allocated_again = False

    async def request(self, call: Call) -> bytes:
        if not asks(call) or self.allocated_again:
            return await super().request(call)
        self.allocated_again = True
        deallocated = asyncio.Event()
        self.world.watch_claims(lambda claim: deallocated.set() if not claim.status.allocation else None)
        before = (await self.world.client.get(CLAIMS.untyped(), "mine", "default"))["status"]
        answer = await super().request(call)
        await deallocated.wait()
        status = {"driverName": before["driverName"], "allocation": before["allocation"]}
        await self.world.client.patch(CLAIMS, "mine", {"status": status}, "default", subresource="status")
        await self.world.settle()
        return answer


def test_what_a_driver_allocates_again_meanwhile_is_deallocated_again(play: Any) -> None:
    """A late write of a PodScheduling selects the node once more, when the driver has just deallocated there."""

    async def scenario(world: World) -> None:
        client = SlowAnswer(world)
        await begin(world, client)
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        await world.delete_pod("p")
        await world.settle(200)
        assert client.allocated_again
        assert (await world.claim("mine")).status.allocation is None
        assert len(world.ledger) == 0

    play(scenario)


class SlowRead(FaultClient):
    """The answer to the first request to deallocate is lost. The claim is then read, which is answered only after
    a minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world.server.client())
        self.lost = self.read = False

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if asks(call) and not self.lost:
            self.lost = True
            raise OutcomeUnknown("connection lost")
        if self.lost and not self.read and call.resource == CLAIMS and call.method == "GET" and call.name:
            self.read = True
            await asyncio.sleep(60)
        return answer


def test_a_claim_that_the_next_pod_has_by_then_stays_allocated(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = SlowRead(world)
        driver = await begin(world, client)
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        await world.add_pod("q", claims=["mine"])
        await asyncio.sleep(30)
        await world.finish_pod("p")
        await asyncio.sleep(30)
        assert client.read
        assert await world.node_of("q") == "a"
        await asyncio.sleep(60)
        claim = await world.claim("mine")
        assert (claim.status.deallocation_requested, [user.name for user in claim.status.reserved_for]) == (
            False,
            ["q"],
        )
        assert len(driver._held) == 1

    play(scenario)
