"""ClaimReleases of nodes that are lost, which nobody will ever answer, unless the node comes back."""

import asyncio

import pytest
from tests.support.late_writes import LateClient
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.test_stranded import untaint

from parley.api.models import ClaimRelease
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, NODES
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Client


async def released_by_force(world: World, claims: tuple[str, ...], client: Client | None = None) -> None:
    """A pod on node a was deleted by force while its kubelet did nothing."""
    world.start_parley(client)
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    for claim in claims:
        await world.add_claim(claim)
    await world.add_pod("old", *([] if claims else ["one"]), claims=claims)
    await world.settle()
    world.kubelets.stop("a")
    await world.force_delete("old")
    await world.settle()


async def records(world: World) -> list[ClaimRelease]:
    return list((await world.client.list(CLAIM_RELEASES)).items)


async def lose(world: World, how: str) -> None:
    """Node a is gone, or out of service."""
    if how == "gone":
        await world.client.delete(NODES, "a")
    else:
        await world.taint("a", OUT_OF_SERVICE_TAINT, "NoExecute")


@pytest.mark.parametrize("how", ["gone", "out of service"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
@pytest.mark.parametrize("led", [True, False], ids=["while it leads", "while nobody leads"])
def test_the_record_of_a_driver_that_left_the_controller_goes_with_its_node(
    play: Play, how: str, claims: tuple[str, ...], *, led: bool
) -> None:
    async def scenario(world: World) -> None:
        await released_by_force(world, claims)
        await world.crash()
        if led:
            world.start_parley(drivers=[TokensDriver()])
            await world.settle()
        (record,) = await records(world)
        assert record.spec.driver_name == DeviceDriver.name
        await lose(world, how)
        if not led:
            world.start_parley(drivers=[TokensDriver()])
        await world.settle()

        assert await records(world) == []

    play(scenario)


@pytest.mark.parametrize("how", ["gone", "out of service"])
def test_a_node_that_is_back_and_not_seen_yet_owes_a_receipt(play: Play, how: str) -> None:
    """Its kubelet has the claim prepared. What the cache has not shown yet the API server knows."""

    async def scenario(world: World) -> None:
        watch = HeldWatch(world.server.client(), NODES)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(watch)
        await world.add_pod("p", "one")
        await world.settle()
        await lose(world, how)
        await world.settle(5)
        watch.open.clear()
        if how == "gone":
            await world.add_node("a", devices=1)
        else:
            await world.client.patch(NODES, "a", {"spec": {"taints": None}})
        world.kubelets.stop("a")
        await world.force_delete("p")
        await world.settle(5)

        assert [record.spec.node_name for record in await records(world)] == ["a"]

    play(scenario)


def deletes_a_release(call: Call) -> bool:
    return call.resource == CLAIM_RELEASES and call.verb == "delete"


@pytest.mark.parametrize("how", ["gone", "out of service"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_a_node_that_is_back_before_its_record_is_deleted_owes_the_receipt_still(
    play: Play, how: str, claims: tuple[str, ...]
) -> None:
    """The deletion was decided on while the node was lost, and arrives late."""

    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), deletes_a_release, late=20.0)
        await released_by_force(world, claims, client)
        client.armed = True
        await lose(world, how)
        await asyncio.wait_for(client.given_up.wait(), 10)
        if how == "gone":
            await world.add_node("a", devices=1)
        else:
            await untaint(world, "a")
        await world.add_pod("new", "one")
        await world.settle(60)
        assert client.arrived is not None
        assert client.arrived.done()
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("new") == "a"
        assert await records(world) == []

    play(scenario)
