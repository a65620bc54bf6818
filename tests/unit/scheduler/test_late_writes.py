"""A write about a named claim that was given up and arrives late: what was taken out since stays out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from parley.api.resources import CLAIMS
from parley.kube.around import AroundClient, Call
from parley.kube.client import Client, Conflict, OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")

pytestmark = pytest.mark.doors("native", "extender")

LATE = 4.0
"""Seconds after which the write arrives."""


class LateClient(AroundClient):
    """Holds up the first write of a claim's status once `armed` is set. `arrived` says what became of it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.armed = False
        self.given_up = asyncio.Event()
        self.arrived: asyncio.Task[str] | None = None

    async def write(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        if not self.armed or call.resource != CLAIMS or call.subresource != "status":
            return await request()
        self.armed = False
        self.given_up.set()
        self.arrived = asyncio.create_task(_arrive(request))
        raise OutcomeUnknown("connection lost")


async def _arrive(request: Callable[[], Awaitable[Any]]) -> str:
    await asyncio.sleep(LATE)
    try:
        await request()
    except Conflict:
        return "refused"
    return "accepted"


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_a_late_reservation_for_a_pod_that_is_gone_is_refused(play: Any, mode: str) -> None:
    async def scenario(world: World) -> None:
        client = LateClient(world.server.client())
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client)
        await world.add_claim("disk", mode=mode)
        await world.settle()

        client.armed = True
        await world.add_pod("p", claims=["disk"])
        await client.given_up.wait()
        await world.force_delete("p")
        await world.settle()

        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        claim = await world.claim("disk")
        assert not claim.status.reserved_for
        assert (claim.status.allocation is not None) == (mode == "Immediate")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert await world.mirror("disk") is None
        assert len(world.ledger) == 0

    play(scenario)
