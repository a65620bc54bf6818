"""Reservation pods that are refused: the claim says so, and its users get their room all the same."""

import asyncio

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reservation_pods import KUBE_SCHEDULER, Play, after_first_task, held
from tests.unit.scheduler.reserving import claim, disks, task

from parley.api import reasons
from parley.api.resources import CLAIMS, PODS
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import ApiError, Client, Forbidden, NotFound, OutcomeUnknown, ServerError, TooManyRequests
from parley.kube.transport import Call


@pytest.mark.parametrize("enabled", [True, False])
def test_where_room_can_not_be_held_the_claim_says_so(play: Play, enabled: bool) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        schedulers = (KUBE_SCHEDULER,) if enabled else ()
        client = NoPods(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=schedulers)
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        why = (
            "the API server refused a reservation pod: not here" if enabled else "reservation pods are not enabled"
        )
        events = dict(await world.events_on("build"))
        assert f"Ordinary pods may take what it reserves on node a: {why}" in events[reasons.ROOM_NOT_HELD]

    play(scenario)


def test_a_quota_that_lets_no_further_pod_in_keeps_no_user_from_its_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = NoPods(world.server.client())
        client.quota = 2
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await after_first_task(world, cpu="6")
        assert await held(world) == {"a": ["6"]}
        assert await task(world, "late", "build", cpu="4") == "a"
        assert await held(world) == {}
        client.quota = 1
        await asyncio.sleep(120)
        assert await held(world) == {"a": ["2"]}

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [
        NotFound(404, "NotFound", 'namespaces "parley-system" not found'),
        ServerError(500, "InternalError", "failed calling webhook: connection refused"),
        TooManyRequests(429, "TooManyRequests", "slow down"),
        OutcomeUnknown("no answer within the 4 s that the lease leaves for a write"),
    ],
)
def test_a_user_gets_its_room_whatever_keeps_reservation_pods_from_being_made(
    play: Play, error: ApiError | OutcomeUnknown
) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = NoPods(world.server.client())
        client.error = error
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        told = reasons.ROOM_NOT_HELD in dict(await world.events_on("build"))
        assert told == isinstance(error, NotFound)
        client.quota = 10
        await asyncio.sleep(600)
        assert await held(world) == {"a": ["5"]}

    play(scenario)


def test_a_pod_that_could_not_be_deleted_is_deleted_later(play: Play) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = KeepsPods(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await after_first_task(world, cpu="6")
        client.allowed = False
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await world.settle()
        assert await held(world) == {"a": ["6"]}
        client.allowed = True
        await asyncio.sleep(120)
        assert await held(world) == {}

    play(scenario)


class KeepsPods(Client):
    """An account that may not always delete pods."""

    allowed = True

    async def request(self, call: Call) -> bytes:
        if call.verb == "delete" and call.resource == PODS and not self.allowed:
            raise Forbidden(403, "Forbidden", "not now")
        return await super().request(call)


class NoPods(Client):
    """An account that may make no more than a few pods."""

    quota = 0
    error: ApiError | OutcomeUnknown = Forbidden(403, "Forbidden", "not here")

    async def request(self, call: Call) -> bytes:
        if call.verb == "create" and call.resource == PODS:
            if not self.quota:
                raise self.error
            self.quota -= 1
        return await super().request(call)
