"""What Parley has written itself and not seen yet: no pod is bound by what its cache shows from before."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.faults import FaultClient

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.kube.client import Call, Client, OutcomeUnknown, RawEvent, ServerError
from parley.kube.informer import Informer

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")

LAG = 5.0
"""Seconds by which the watch of built-in claims is behind."""


class LaggingClient(Client):
    """Fails the first binding after `armed` is set; from then on changes of built-in claims are seen late."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.armed = False
        self._lags = False

    async def request(self, call: Call) -> bytes:
        if self.armed and call.resource == PODS and call.subresource == "binding":
            self.armed, self._lags = False, True
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        return await super().request(call)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if self._lags and call.resource == BUILTIN_CLAIMS:
                await asyncio.sleep(LAG)
            yield event


@pytest.mark.scheduling_paths("extender")
def test_a_pod_whose_reservation_was_taken_out_is_not_bound_with_it(play: Any) -> None:
    """It was let in, its binding failed, it was taken out, and its scheduler tries again before that is seen."""

    async def scenario(world: World) -> None:
        reserved: list[bool] = []

        def seen(old: Pod | None, new: Pod | None) -> None:
            if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
                mirror = world.server.get(BUILTIN_CLAIMS, "common", "default").body
                users = {user["uid"] for user in mirror["status"]["reservedFor"]}
                reserved.append(new.metadata.uid in users)

        watching = asyncio.create_task(Informer(world.client, PODS, on_change=seen).run())
        client = LaggingClient(world.server.client())
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        await world.add_claim("common")
        world.start_parley(client)
        await world.add_pod("p1", claims=["common"])
        await world.settle()

        client.armed = True
        await world.add_pod("p2", claims=["common"])
        await world.settle()
        assert await world.node_of("p2") == "a"
        assert reserved == [True, True]
        watching.cancel()

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_pods_that_go_before_their_claim_was_recorded_leave_nothing(play: Any) -> None:
    """Two share a claim whose record nobody could write, and both go: there is no reservation to take out."""

    async def scenario(world: World) -> None:
        dark = False

        def fail(call: Call) -> None:
            if dark and call.resource == CLAIMS and call.subresource == "status":
                raise OutcomeUnknown("connection lost")

        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        await world.add_claim("common")
        world.start_parley(FaultClient(world.server.client(), before=fail))
        await world.settle()

        dark = True
        for name in ("p1", "p2"):
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(5)
        await world.client.delete(CLAIMS, "common", "default")
        await asyncio.sleep(1)
        for name in ("p1", "p2"):
            await world.force_delete(name)
        await asyncio.sleep(1)
        dark = False
        await world.settle(60)
        assert len(world.ledger) == 0
        assert await world.mirror("common") is None

    play(scenario)


@pytest.mark.scheduling_paths("extender")
def test_what_was_recorded_in_a_claim_that_was_made_anew_is_cleared_there(play: Any, watcher: Any) -> None:
    """The first built-in claim was deleted before the allocation was in it, and the pod's binding fails."""

    async def scenario(world: World) -> None:
        dark = deleted = failed = False

        def trouble(call: Call) -> None:
            nonlocal dark, deleted, failed
            if call.resource == BUILTIN_CLAIMS and call.subresource == "status" and not deleted:
                world.server.delete(BUILTIN_CLAIMS, call.name, "default")
                deleted = dark = True
            if dark and call.resource in (BUILTIN_CLAIMS, PODS):
                raise OutcomeUnknown("connection lost")
            if call.subresource == "binding" and not failed:
                failed = True
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

        watching = watcher(world)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=trouble))
        await world.settle()
        await world.add_pod("p1", "one")
        await asyncio.sleep(0.5)
        await world.add_pod("p2", "one")
        await asyncio.sleep(0.1)
        dark = False
        await world.settle()
        assert deleted
        assert failed
        assert watching.faults == []
        watching.stop()

    play(scenario)
