"""Another controller waits for the same receipts, and sees what happened to nodes and pods while none led."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.unit.scheduler.releasing import SHUT_DOWN, handed_on, lost, one_device, records, restart
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS
from parley.kube.client import Call, Client, NotFound

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_another_leader_waits_for_the_receipt_too(play: Play, claims: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await lost(world, claims=claims)
        await restart(world)
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_a_receipt_that_came_while_nobody_led_is_seen(play: Play, claims: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await lost(world, claims=claims)
        await world.crash()
        world.kubelets.start("a")
        await world.settle()
        world.start_parley()
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_a_node_that_goes_out_of_service_while_nobody_leads_is_seen(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await lost(world)
        await world.crash()
        await world.taint("a", *SHUT_DOWN)
        world.start_parley()
        await world.settle()
        assert len(world.ledger) == 0
        assert await records(world) == []

    play(scenario)


def test_a_forced_deletion_of_a_named_claims_user_while_nobody_leads_is_seen(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.settle()
        await world.crash()
        world.kubelets.stop("a")
        await world.force_delete("old")
        await world.add_pod("new", claims=["disk"])
        world.start_parley()
        await world.settle()
        assert await world.node_of("new") == ""
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


class SlowAnswers(Client):
    """The API server's answers to writes come seconds later than the changes by the watch."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        await asyncio.sleep(5 if call.writes else 0)
        return answer


@pytest.mark.scheduling_paths("native")
def test_who_looks_while_a_receipt_is_asked_for_is_told_of_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.settle()
        await world.crash()
        world.kubelets.stop("a")
        await world.force_delete("old")
        await world.add_pod("new", claims=["disk"])
        world.start_parley(SlowAnswers(world.server.client()))
        await world.settle()
        assert (await world.scheduling("new")).status.waiting_for == reasons.RELEASING

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("driver", ["device", "shelf"])
def test_what_was_offered_on_several_nodes_waits_for_its_node_though_its_pod_is_gone(
    play: Play, driver: str
) -> None:
    """Nobody led when the pod was deleted by force, and its claim stays because somebody put a finalizer there.
    Only devices tell on which of the nodes it is: without them all are asked."""

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class(placement="Exact")
        if driver == "shelf":
            await add_shelf_class(world, placement="Exact")
        await world.add_template("one", "shelf" if driver == "shelf" else "gpu")
        drivers = [ShelfDriver(Behaviour(other=1))] if driver == "shelf" else None
        world.start_parley(drivers=drivers)
        await world.add_pod("old", "one")
        await world.settle()
        node = await world.node_of("old")
        (mirror,) = await world.mirrors()
        await world.add_pod("other", "one")
        await world.settle()
        meta = mirror.metadata
        stays = {"metadata": {"finalizers": ["tenant.example.org/stays"]}}
        await world.client.patch(BUILTIN_CLAIMS, meta.name, stays, meta.namespace)
        await world.crash()
        world.kubelets.stop(node)
        await world.force_delete("old")
        await world.client.delete(BUILTIN_CLAIMS, meta.name, meta.namespace)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1))] if driver == "shelf" else None)
        await world.add_pod("new", "one")
        await world.settle()
        assert await world.node_of("new") == ""
        world.kubelets.start(node)
        await world.settle()
        assert await world.node_of("new") == node

    play(scenario)


def test_a_record_that_arrives_late_holds_its_claim_up_until_the_receipt_and_no_longer(play: Play) -> None:
    """It was made by a controller that is gone, for an allocation that has ended meanwhile."""

    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await lost(world, claims=("disk",))
        await world.force_delete("new")
        (record,) = (await world.client.list(CLAIM_RELEASES.untyped())).items
        world.kubelets.start("a")
        await world.settle()
        assert await records(world) == []
        await world.crash()
        await world.create(
            CLAIM_RELEASES, {"metadata": {"name": record["metadata"]["name"]}, "spec": record["spec"]}
        )
        await world.client.delete(CLAIMS, "disk", "default")
        world.start_parley()
        await world.settle()
        assert await records(world) == []
        with pytest.raises(NotFound):
            await world.claim("disk")

    play(scenario)
