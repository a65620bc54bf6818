"""Requests to remove data that were decided on for an earlier allocation, and come late."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.removing import KEEP, Numbering, Removals

from parley.api.resources import CLAIM_RELEASES
from parley.kube.client import Call, OutcomeUnknown


class Delayed(FaultClient):
    """The request `late` to remove data arrives just before the next ClaimRelease is created. Nothing arrives any
    more after it was deleted, if that `cuts_off`."""

    late: dict[str, Any] | None = None
    cuts_off = False
    is_cut_off = False

    async def request(self, call: Call) -> bytes:
        if self.is_cut_off:
            raise OutcomeUnknown("connection lost")
        if call.resource == CLAIM_RELEASES and call.verb == "create" and self.late is not None:
            late, self.late = self.late, None
            await super().request(replace(call, body=late))
        answer = await super().request(call)
        self.is_cut_off = self.cuts_off and call.resource == CLAIM_RELEASES and call.verb == "delete"
        return answer


async def begin_second(world: World, **class_: Any) -> tuple[Delayed, dict[str, Any]]:
    """A claim's data was removed, and a second pod uses the claim. Also returns the request that removed it."""
    await world.add_node("a", devices=1)
    await world.add_class(**class_)
    client = Delayed(world.server.client())
    world.start_parley(client, drivers=[Numbering()])
    await world.add_claim("disk")
    await world.add_pod("first", claims=["disk"])
    await world.settle()
    await world.finish_pod("first")
    world.kubelets.stop("a")
    await world.settle(KEEP + 60)
    (request,) = (await world.client.list(CLAIM_RELEASES.untyped())).items
    world.kubelets.start("a")
    await world.settle()
    await world.add_pod("second", claims=["disk"])
    await world.settle()
    assert await world.node_of("second") == "a"
    world.kubelets.stop("a")
    body = {key: request[key] for key in ("apiVersion", "kind", "spec")}
    return client, {**body, "metadata": {"name": request["metadata"]["name"]}}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_late_request_to_remove_an_earlier_allocations_data_does_not_stand_for_this_ones(
    play: Play, restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        client, late = await begin_second(world)
        client.late = late
        removals = Removals(world)
        await world.finish_pod("second")
        await asyncio.sleep(0.01 if restarted else 60)
        if restarted:
            await world.crash()
            world.start_parley(drivers=[Numbering()])
            await world.settle(60)
        world.kubelets.start("a")
        await world.settle()
        removals.task.cancel()
        assert removals.numbers == [2]
        assert (await world.claim("disk")).status.allocation is None
        assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)


def test_a_late_request_for_an_earlier_allocation_does_not_end_a_kept_one_when_the_leader_changes(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        _, late = await begin_second(world, whenUnused={"keepSeconds": KEEP})
        removals = Removals(world)
        world.kubelets.start("a")
        await world.finish_pod("second")
        await world.settle(10)
        await world.crash()
        await world.create(CLAIM_RELEASES, late)
        world.start_parley(drivers=[Numbering()])
        await world.settle(60)
        assert (await world.claim("disk")).status.allocation is not None
        assert removals.numbers == []
        assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)


def test_a_receipt_is_owed_though_the_leader_ends_as_it_has_deleted_a_late_request_to_remove_data(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        client, late = await begin_second(world, whenUnused={"keepSeconds": KEEP})
        client.late, client.cuts_off = late, True
        await world.stop_claim_controller()
        await world.force_delete("second")
        await world.settle()
        assert client.is_cut_off
        await world.crash()
        world.start_parley(drivers=[Numbering()])
        await world.add_pod("third", claims=["disk"])
        await world.settle()
        assert await world.node_of("third") == "", "the second pod's containers may run"
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("third") == "a"

    play(scenario)
