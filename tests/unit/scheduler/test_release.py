"""After a forced deletion nothing is handed on that the node may still have prepared: its receipt is waited for.

The simulated kubelets unprepare a few seconds after a pod's object went by force; a node that is stopped does not.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.conditions import ready
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api import reasons
from parley.api.models import ClaimRelease
from parley.api.names import (
    CONDITION_RELEASING,
    OUT_OF_SERVICE_TAINT,
)
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, NODES, PODS, TEMPLATES, Resource
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Client, NotFound

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

T = TypeVar("T")

Play = Callable[[Callable[[World], Any]], None]

SHUT_DOWN = (OUT_OF_SERVICE_TAINT, "NoExecute")


async def one_device(world: World, **class_: Any) -> None:
    """Node a has the only device; whoever gets a claim runs there."""
    world.start_parley()
    await world.add_node("a", devices=1)
    await world.add_node("b")
    await world.add_class(**class_)
    await world.add_template()


async def lost(world: World, *, claims: tuple[str, ...] = ()) -> None:
    """Pod "old" was deleted by force while its node did nothing; pod "new" wants the same."""
    templates = () if claims else ("one",)
    await world.add_pod("old", *templates, claims=claims)
    await world.settle()
    assert (await world.pod("old")).status.phase == "Running"
    world.kubelets.stop("a")
    await world.force_delete("old")
    await world.add_pod("new", *templates, claims=claims)
    await world.settle()


async def records(world: World) -> list[ClaimRelease]:
    return sorted((await world.client.list(CLAIM_RELEASES)).items, key=lambda release: release.spec.node_name)


async def restart(world: World) -> None:
    await world.crash()
    world.start_parley()
    await world.settle()


async def handed_on(world: World) -> None:
    assert await world.node_of("new") == "a"
    assert (await world.pod("new")).status.phase == "Running"
    assert await records(world) == []
    assert set((await world.devices()).values()) == {1}


def test_a_device_is_handed_on_when_its_node_has_unprepared_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await lost(world)
        assert await world.node_of("new") == ""
        (record,) = await records(world)
        (used,) = [key for key in world.kubelets.prepared if key[0] == "a"]
        assert (record.spec.node_name, record.spec.claim.uid) == used
        assert record.spec.claim.namespace == "default"
        assert record.spec.driver_name == "device.parley.dev"
        assert record.status.allocation_cleared
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_a_kubelet_that_runs_gives_the_receipt_by_itself(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        await world.force_delete("old")
        await world.add_pod("new", "one")
        await world.settle()
        await handed_on(world)

    play(scenario)


@pytest.mark.parametrize("ended", ["deleted", "finished"])
def test_a_normal_end_needs_no_receipt_and_no_write(play: Play, ended: str) -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        world.watch_claims(lambda claim: seen.append(claim.metadata.name))
        if ended == "deleted":
            await world.delete_pod("old")
        else:
            await world.finish_pod("old")
        await world.add_pod("new", "one")
        await world.settle()
        await handed_on(world)
        assert seen == []

    play(scenario)


def test_a_pod_that_was_never_bound_leaves_nothing_behind(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await world.add_pod("waits", claims=["disk"], nodeSelector={"no": "such"})
        await world.settle()
        await world.force_delete("waits")
        await world.add_pod("new", claims=["disk"])
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_what_nothing_prepares_on_the_node_is_free_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, nodePart="None")
        await lost(world)
        assert await world.node_of("new") == "a"
        assert await records(world) == []

    play(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
@pytest.mark.parametrize("how", ["tainted", "deleted"])
def test_a_node_that_is_out_of_service_owes_nothing(
    play: Play, when: str, claims: tuple[str, ...], how: str
) -> None:
    async def scenario(world: World) -> None:
        async def end_node() -> None:
            if how == "tainted":
                await world.taint("a", *SHUT_DOWN)
            else:
                await world.client.delete(NODES, "a")

        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await world.add_pod("old", *(() if claims else ("one",)), claims=claims)
        await world.settle()
        world.kubelets.stop("a")
        if when == "before":
            await end_node()
        await world.force_delete("old")
        await world.settle()
        if when == "after":
            assert len(world.ledger) == 1
            await end_node()
        await world.settle()
        assert len(world.ledger) == 0
        assert await records(world) == []
        for claim in (await world.client.list(CLAIMS)).items:
            assert ready(claim) == "WaitForFirstConsumer"
            assert claim.status.allocation is None

    play(scenario)


def test_a_named_claim_shows_that_it_is_releasing_from_where_and_since_when(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await lost(world, claims=("disk",))
        claim, mirror = await world.claim("disk"), await world.mirror("disk")
        assert ready(claim) == "Releasing"
        assert claim.status.reserved_for == ()
        assert claim.status.allocation is not None
        assert mirror is not None
        assert mirror.status.allocation is None
        (condition,) = [c for c in claim.status.conditions if c.type == CONDITION_RELEASING]
        assert condition.message == (
            "a pod that used it on node a was deleted by force, and the node plugin there has yet to confirm that "
            "it is not prepared any more: bring the node back, or, if it is shut down, taint it "
            "node.kubernetes.io/out-of-service"
        )
        since = condition.last_transition_time
        words = f"claim default/disk is not free yet (since {since}): {condition.message}"
        assert (reasons.RELEASING, words) in await world.events_on("new")
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [c.type for c in claim.status.conditions] == [reasons.ACCEPTED, reasons.ALLOCATED, reasons.READY]

    play(scenario)


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


def test_an_immediate_claim_keeps_its_allocation_and_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk", mode="Immediate")
        await lost(world, claims=("disk",))
        assert await world.node_of("new") == ""
        assert ready(await world.claim("disk")) == "Releasing"
        await restart(world)
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_an_immediate_claim_nobody_waits_for_is_shown_as_free_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk", mode="Immediate")
        await lost(world, claims=("disk",))
        await world.delete_pod("new")
        await world.crash()
        world.kubelets.start("a")
        await world.settle()
        world.start_parley()
        await world.settle()
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [c.type for c in claim.status.conditions if c.type == CONDITION_RELEASING] == []

    play(scenario)


def test_a_shared_claim_stays_with_its_other_pods(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.add_pod("other", claims=["disk"])
        await world.settle()
        await world.force_delete("old")
        await world.add_pod("third", claims=["disk"])
        await world.settle()
        assert await world.node_of("third") == "a"
        (record,) = await records(world)
        assert not record.status.allocation_cleared
        for name in ("other", "third"):
            await world.delete_pod(name)
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"
        assert await records(world) == []
        assert len(world.ledger) == 0

    play(scenario)


def test_the_last_pod_of_a_shared_claim_waits_for_what_an_earlier_one_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.add_pod("other", claims=["disk"])
        await world.settle()
        world.kubelets.stop("a")
        await world.force_delete("old")
        await world.settle()
        await world.finish_pod("other")
        await world.settle()
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"

    play(scenario)


def test_no_node_answers_for_a_claim_that_others_use(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        for name in ("old", "last"):
            await world.add_pod(name, claims=["disk"])
        await world.settle()
        await world.force_delete("old")
        await world.settle()
        (first,) = await records(world)
        world.kubelets.stop("a")
        await world.force_delete("last")
        await world.settle()
        (record,) = await records(world)
        assert record.metadata.uid == first.metadata.uid
        assert record.status.allocation_cleared
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"
        assert len(world.ledger) == 0

    play(scenario)


async def lost_on_two_nodes(world: World) -> None:
    """Pods a and b, on nodes of these names, shared a seat and were deleted by force; nothing is unprepared."""
    world.start_parley(drivers=[TokensDriver()])
    for name in ("a", "b"):
        await world.add_node(name)
    await world.add_class("seats", driverName=TokensDriver.name, parameters={"pool": 1}, shareable=True)
    await world.add_claim("seat", "seats")
    for name in ("a", "b"):
        await world.add_pod(name, claims=["seat"], nodeSelector={"kubernetes.io/hostname": name})
        await world.settle()
        world.kubelets.stop(name)
    for name in ("a", "b"):
        await world.force_delete(name)
    await world.settle()


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_all_nodes_of_a_shared_claim_are_asked_at_once_and_waited_for(
    play: Play, first: str, restarted: bool
) -> None:
    async def restart_if_need_be(world: World) -> None:
        if restarted:
            await world.crash()
            world.start_parley(drivers=[TokensDriver()])
            await world.settle()

    async def scenario(world: World) -> None:
        await lost_on_two_nodes(world)
        assert [r.spec.node_name for r in await records(world) if r.status.allocation_cleared] == ["a", "b"]
        (condition,) = [c for c in (await world.claim("seat")).status.conditions if c.type == CONDITION_RELEASING]
        assert condition.message == (
            "pods that used it on nodes a, b were deleted by force, and the node plugins there have yet to "
            "confirm that it is not prepared any more: bring them back, or taint those that are shut down "
            "node.kubernetes.io/out-of-service"
        )
        await restart_if_need_be(world)
        (last,) = {"a", "b"} - {first}
        world.kubelets.start(first)
        await world.settle()
        await restart_if_need_be(world)
        claim = await world.claim("seat")
        (condition,) = [c for c in claim.status.conditions if c.type == CONDITION_RELEASING]
        assert ready(claim) == "Releasing"
        assert condition.message.startswith(f"a pod that used it on node {last} was deleted by force")
        assert [record.spec.node_name for record in await records(world)] == [last]
        world.kubelets.start(last)
        await world.settle()
        assert ready(await world.claim("seat")) == "WaitForFirstConsumer"
        assert await records(world) == []

    play(scenario)


async def end_namespace(world: World) -> None:
    """Everything in it goes, with the pods' grace and what keeps claims from going cut short."""
    kinds: tuple[Resource[Any], ...] = (PODS, CLAIMS, BUILTIN_CLAIMS, TEMPLATES)
    for resource in (kind.untyped() for kind in kinds):
        for meta in [item["metadata"] for item in (await world.client.list(resource, "default")).items]:
            await world.client.delete(resource, meta["name"], "default", grace_period_seconds=0)
            if meta.get("finalizers"):
                await world.client.patch(resource, meta["name"], {"metadata": {"finalizers": None}}, "default")


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_a_namespace_that_is_deleted_leaves_the_device_taken_until_the_receipt(
    play: Play, claims: tuple[str, ...], restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await lost(world, claims=claims)
        await end_namespace(world)
        await world.settle()
        if restarted:
            await restart(world)
        assert len(await records(world)) == 1
        await (world.add_claim("disk") if claims else world.add_template())
        await world.add_pod("new", *(() if claims else ("one",)), claims=claims)
        await world.settle()
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_a_record_that_somebody_deletes_is_taken_for_the_receipt(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await lost(world)
        (record,) = await records(world)
        await world.client.delete(CLAIM_RELEASES, record.metadata.name)
        await world.settle()
        assert await world.node_of("new") == "a"

    play(scenario)


def test_a_named_claim_goes_when_it_is_deleted_and_the_receipt_is_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await lost(world, claims=("disk",))
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert ready(await world.claim("disk")) == "ClaimBeingDeleted"
        world.kubelets.start("a")
        await world.settle()
        with pytest.raises(NotFound):
            await world.claim("disk")

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


def test_a_pod_that_is_only_being_deleted_keeps_what_it_has(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        world.kubelets.stop("a")
        await world.delete_pod("old")
        await world.add_pod("new", "one")
        await world.settle()
        assert (await world.client.get(PODS, "old", "default")).metadata.deletion_timestamp
        assert await world.node_of("new") == ""
        assert await records(world) == []

    play(scenario)
