"""What claims leave on nodes that are lost is removed when these come back, and nothing waits for it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support.faults import FaultClient
from tests.support.late_writes import LateClient
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.removing import Removals
from tests.unit.scheduler.test_lost_nodes import deletes_a_release
from tests.unit.scheduler.test_stranded import come_back, delete, untaint
from tests.unit.scheduler.test_stranded_ways import AFTER, KEEP, RECREATE, Settling, out_of_service

from parley.api.models import ClaimRelease
from parley.api.names import CONDITION_RELEASING
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS
from parley.control.release.leftovers import FORGET_AFTER_SECONDS
from parley.drivers.device.driver import DeviceRequest
from parley.kube.client import Call, Client, OutcomeUnknown
from parley.sdk import Allocation


class Leaving(Settling):
    """Leaves something on nodes, as workspaces do."""

    leaves_data = True


class Nulls(Leaving):
    """Its handles have fields without a value, which the API server drops from records."""

    async def allocate(self, request: DeviceRequest, node: str) -> Mapping[str, Allocation]:
        allocated = await super().allocate(request, node)
        more = {"label": None, "mounts": [{"path": "/data", "owner": None}]}
        return {name: replace(a, data={**a.data, **more}) for name, a in allocated.items()}


async def begin(
    world: World, client: Client | None = None, driver: type[Leaving] = Leaving
) -> tuple[Removals, str]:
    """A claim is kept; returns its node."""
    for node in ("a", "b"):
        await world.add_node(node, devices=1)
    await world.add_class(whenUnused={"keepSeconds": KEEP})
    world.start_parley(client, drivers=[driver(RECREATE)])
    await world.add_claim("disk")
    await world.add_pod("first", claims=["disk"])
    await world.settle(10)
    await world.delete_pod("first")
    await world.settle(10)
    held = await releases(world)
    assert held == []
    claim = await world.claim("disk")
    assert claim.status.allocation is not None
    said = next(c for c in claim.status.conditions if c.type == "Allocated")
    return Removals(world), said.message.removeprefix("allocated on node ")


async def lose(world: World, node: str) -> None:
    await out_of_service(world, node)
    world.kubelets.stop(node)
    await asyncio.sleep(AFTER)
    await world.settle(30)


async def releases(world: World) -> Sequence[ClaimRelease]:
    return list((await world.client.list(CLAIM_RELEASES)).items)


class Unanswered(FaultClient):
    """While `broken`, the controller's writes that clear claims are lost."""

    broken = False

    async def request(self, call: Call) -> bytes:
        status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
        if self.broken and call.resource == CLAIMS and status.get("allocation", "") is None:
            raise OutcomeUnknown("connection lost")
        return await super().request(call)


@pytest.mark.parametrize("driver", [Leaving, Nulls])
@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_is_left_behind_by_a_claim_whose_end_failed_until_its_node_was_back(
    play: Play, restarted: bool, driver: type[Leaving]
) -> None:
    async def scenario(world: World) -> None:
        client = Unanswered(world.server.client())
        removals, first = await begin(world, client, driver)
        client.broken = True
        await lose(world, first)
        assert [release.spec.node_lost for release in await releases(world)] == [True]
        client.broken = False
        if restarted:
            await world.crash()
        await untaint(world, first)
        if restarted:
            world.start_parley(drivers=[driver(RECREATE)])
        world.kubelets.start(first)
        await world.settle(120)
        assert await releases(world) == []
        assert removals.allowed == [], "the claim is kept, and so is its data"
        assert [holding.node for holding in world.ledger] == [first]

        removals.done.clear()
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(30)
        assert removals.done == [("disk", first)]
        assert len(world.ledger) == 0

    play(scenario)


def test_what_is_on_a_node_that_is_lost_again_before_its_record_is_deleted_is_removed_all_the_same(
    play: Play,
) -> None:
    """The deletion was decided on while the node was back, and arrives late."""

    async def scenario(world: World) -> None:
        unanswered = Unanswered(world.server.client())
        client = LateClient(unanswered, deletes_a_release, late=20.0)
        removals, first = await begin(world, client)
        unanswered.broken = True
        await lose(world, first)
        client.armed = True
        await untaint(world, first)
        await asyncio.wait_for(client.given_up.wait(), 60)
        await out_of_service(world, first)
        unanswered.broken = False
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(60)
        assert client.arrived is not None
        assert client.arrived.done()
        assert len(world.ledger) == 0
        assert [release.spec.node_name for release in await releases(world)] == [first]
        await untaint(world, first)
        world.kubelets.start(first)
        await world.settle(60)
        assert removals.allowed == [("disk", first)]
        assert await releases(world) == []

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_began_anew_elsewhere_is_removed_when_its_node_is_back(play: Play, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        removals, first = await begin(world)
        await lose(world, first)
        await world.add_pod("next", claims=["disk"])
        await world.settle(30)
        second = await world.node_of("next")
        assert second not in ("", first)
        (release,) = await releases(world)
        assert (release.spec.node_name, release.spec.node_lost, release.spec.remove_data) == (first, True, True)
        assert release.status.allocation_cleared
        (handle,) = release.spec.allocation.handles
        assert [device.pool for device in handle.devices] == [first]
        if restarted:
            await world.crash()
            world.start_parley(drivers=[Leaving(RECREATE)])
            await world.settle(30)
            assert len(world.ledger) == 1
        assert removals.done == []

        await untaint(world, first)
        world.kubelets.start(first)
        await world.settle(30)

        assert removals.done == [("disk", first)]
        assert await releases(world) == []
        assert await world.node_of("next") == second
        await world.delete_pod("next")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(30)
        assert removals.done == [("disk", first), ("disk", second)]
        assert len(world.ledger) == 0

    play(scenario)


def test_so_is_what_a_claim_had_that_was_deleted_meanwhile_and_it_is_not_waited_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals, first = await begin(world)
        await out_of_service(world, first)
        world.kubelets.stop(first)
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(30)
        assert (await world.client.list(CLAIMS)).items == ()
        assert len(world.ledger) == 0
        (release,) = await releases(world)
        assert release.status.allocation_cleared
        await untaint(world, first)
        world.kubelets.start(first)
        await world.settle(30)
        assert removals.done == [("disk", first)]
        assert await releases(world) == []

    play(scenario)


def test_a_node_that_is_lost_while_it_is_waited_for_removes_it_later(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals, first = await begin(world)
        world.kubelets.stop(first)
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(30)
        assert [release.spec.node_lost for release in await releases(world)] == [False]
        await out_of_service(world, first)
        await world.settle(30)
        assert len(world.ledger) == 0
        assert [release.spec.node_lost for release in await releases(world)] == [True]
        await untaint(world, first)
        world.kubelets.start(first)
        await world.settle(30)
        assert removals.done[-1] == ("disk", first)
        assert await releases(world) == []

    play(scenario)


class Unrecorded(FaultClient):
    """While `broken`, no ClaimRelease can be created."""

    broken = False

    async def request(self, call: Call) -> bytes:
        if self.broken and call.resource == CLAIM_RELEASES and call.verb == "create":
            raise OutcomeUnknown("connection lost")
        return await super().request(call)


def test_so_does_one_that_is_back_before_that_could_be_recorded(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Unrecorded(world.server.client())
        removals, first = await begin(world, client)
        world.kubelets.stop(first)
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(30)
        client.broken = True
        await out_of_service(world, first)
        await world.settle(30)
        removals.done.clear()  # requests that are deleted without being met
        await untaint(world, first)
        client.broken = False
        world.kubelets.start(first)
        await world.settle(120)
        assert removals.done == [("disk", first)]
        assert await releases(world) == []
        assert len(world.ledger) == 0
        assert (await world.client.list(CLAIMS)).items == ()

    play(scenario)


class OutOfServiceForAMoment(FaultClient):
    """Once `armed`, node a is out of service from when the claim's mirror is cleared until its release is
    recorded."""

    armed = is_out = False

    def __init__(self, client: Client, world: World) -> None:
        super().__init__(client)
        self._world = world

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if self.armed and call.resource == BUILTIN_CLAIMS and call.body["status"].get("allocation", "") is None:
            self.armed, self.is_out = False, True
            await out_of_service(self._world, "a")
            await asyncio.sleep(0.1)
        elif self.is_out and call.resource == CLAIMS and CONDITION_RELEASING in str(call.body):
            self.is_out = False
            await untaint(self._world, "a")
            await asyncio.sleep(0.1)
        return answer


def test_a_node_that_is_lost_for_a_moment_while_the_claim_ends_removes_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = OutOfServiceForAMoment(world.server.client(), world)
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client, drivers=[Leaving(RECREATE)])
        await world.add_claim("disk")
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        removals = Removals(world)
        client.armed = True
        await world.finish_pod("first")
        await world.settle()
        assert (client.armed, client.is_out) == (False, False)
        assert removals.done == [("disk", "a")]
        assert await releases(world) == []
        assert len(world.ledger) == 0

    play(scenario)


def test_a_node_that_was_deleted_has_a_day_to_come_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, first = await begin(world)
        world.kubelets.stop(first)
        await delete(world, first)
        await asyncio.sleep(AFTER + 60)
        (release,) = await releases(world)
        assert release.spec.node_name == first
        await asyncio.sleep(FORGET_AFTER_SECONDS / 2)
        assert len(await releases(world)) == 1
        await asyncio.sleep(FORGET_AFTER_SECONDS)
        assert await releases(world) == []
        assert world.controller is not None
        leftovers = world.controller._parts.reconciler._deallocator.releases._leftovers
        assert leftovers._lost == {}, "names of nodes that come and go would fill the memory"

    play(scenario)


def test_so_has_one_that_was_out_of_service_before_it_was_deleted(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, first = await begin(world)
        await lose(world, first)
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(2 * FORGET_AFTER_SECONDS)
        await delete(world, first)
        await asyncio.sleep(FORGET_AFTER_SECONDS / 2)
        assert len(await releases(world)) == 1
        await asyncio.sleep(FORGET_AFTER_SECONDS)
        assert await releases(world) == []

    play(scenario)


def test_it_has_the_day_though_another_controller_leads_that_did_not_see_when_it_was_deleted(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, first = await begin(world)
        await lose(world, first)
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(FORGET_AFTER_SECONDS + 60)
        await delete(world, first)
        await world.crash()
        world.start_parley(drivers=[Leaving(RECREATE)])
        await asyncio.sleep(FORGET_AFTER_SECONDS / 2)
        assert len(await releases(world)) == 1
        await asyncio.sleep(FORGET_AFTER_SECONDS)
        assert await releases(world) == []

    play(scenario)


def test_one_that_is_back_within_the_day_removes_it_whenever_its_plugin_comes_to_that(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals, first = await begin(world)
        world.kubelets.stop(first)
        await delete(world, first)
        await asyncio.sleep(AFTER + 60)
        await come_back(world, first)
        await asyncio.sleep(2 * FORGET_AFTER_SECONDS)
        assert len(await releases(world)) == 1
        world.kubelets.start(first)
        await world.settle(30)
        assert removals.done == [("disk", first)]
        assert await releases(world) == []

    play(scenario)
