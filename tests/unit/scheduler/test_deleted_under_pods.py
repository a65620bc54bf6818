"""An administrator deletes a built-in claim while a pod runs with it: what its node has prepared stays the pod's,
whoever leads, until the node says that it is unprepared."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.test_lost_nodes import lose
from tests.unit.scheduler.test_stranded import untaint

from parley.api.builtin import BuiltinClaim
from parley.api.models import ClaimRelease
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, NODES, PODS
from parley.kube.client import Call, Client

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


async def begin(world: World, client: Client | None = None) -> str:
    """Pod "old" runs with the only device; "new" waits for it. Returns the UID of old's claim."""
    world.start_parley(client)
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_pod("old", "one")
    await world.settle()
    (mirror,) = await world.mirrors()
    await world.add_pod("new", "one")
    await world.settle()
    return mirror.metadata.uid


async def begin_with_named(world: World, client: Client | None = None) -> BuiltinClaim:
    """Pod "old" runs with the only device, by the named claim "disk". Returns the claim's mirror."""
    world.start_parley(client)
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_claim("disk")
    await world.add_pod("old", claims=["disk"])
    await world.settle()
    (mirror,) = await world.mirrors()
    return mirror


async def records(world: World) -> Sequence[ClaimRelease]:
    return (await world.client.list(CLAIM_RELEASES)).items


async def delete(world: World, uid: str) -> None:
    (name,) = [mirror.metadata.name for mirror in await world.mirrors() if mirror.metadata.uid == uid]
    await world.client.patch(BUILTIN_CLAIMS, name, {"metadata": {"finalizers": None}}, "default")
    await world.client.delete(BUILTIN_CLAIMS, name, "default")
    await world.change_pod("old")
    await world.settle(5)


async def still_has_it(world: World, deleted: str) -> None:
    """The pod, by a claim that was made again."""
    assert await world.node_of("new") == ""
    assert (await world.pod("old")).status.phase == "Running"
    (mirror,) = [mirror for mirror in await world.mirrors() if mirror.status.allocation is not None]
    assert mirror.metadata.uid != deleted
    assert [user.name for user in mirror.status.reserved_for] == ["old"]
    assert len(world.ledger) == 1


async def handed_on(world: World) -> None:
    await world.delete_pod("old")
    await world.settle(60)
    assert await world.node_of("new") == "a"
    assert (await world.pod("new")).status.phase == "Running"
    assert list(await records(world)) == []
    assert set((await world.devices()).values()) == {1}
    assert len(world.ledger) == 1


@pytest.mark.parametrize("replaced", [False, True], ids=["", "controller replaced"])
def test_its_node_owes_a_receipt_that_is_asked_for_when_the_pod_has_ended(play: Play, replaced: bool) -> None:
    async def scenario(world: World) -> None:
        uid = await begin(world)
        await delete(world, uid)
        (record,) = await records(world)
        assert (record.spec.claim.uid, record.spec.node_name) == (uid, "a")
        assert not record.status.allocation_cleared
        assert record.spec.running is not None
        assert record.spec.running.name == "old"
        if replaced:
            await world.crash()
            world.start_parley()
            await world.settle()
        await still_has_it(world, uid)
        await handed_on(world)

    play(scenario)


def test_a_new_leader_keeps_it_before_the_claim_is_made_again(play: Play) -> None:
    """kube-controller-manager makes some again only a minute later."""

    async def scenario(world: World) -> None:
        uid = await begin(world)
        await world.stop_claim_controller()
        await delete(world, uid)
        assert [mirror for mirror in await world.mirrors() if mirror.metadata.uid == uid] == []
        await world.crash()
        world.start_parley()
        await world.settle()
        assert await world.node_of("new") == ""
        world.start_claim_controller()
        await world.settle()
        await still_has_it(world, uid)
        await handed_on(world)

    play(scenario)


def test_so_is_what_a_named_claims_pod_has_prepared_by_the_former_one(play: Play) -> None:
    async def scenario(world: World) -> None:
        mirror = await begin_with_named(world)
        await world.add_pod("new", "one")
        await delete(world, mirror.metadata.uid)
        await world.settle()
        again = await world.mirror("disk")
        assert again is not None
        assert again.metadata.uid != mirror.metadata.uid
        assert again.status.allocation is not None
        (record,) = await records(world)
        assert record.spec.claim.uid == mirror.metadata.uid
        await handed_on(world)

    play(scenario)


@pytest.mark.parametrize("end", ["node lost", "deleted by force"])
def test_a_new_leader_waits_no_longer_than_the_node_owes_it(play: Play, end: str) -> None:
    """It knows what is held by the claim that was made again, and the record is of the former one."""

    async def scenario(world: World) -> None:
        uid = await begin(world)
        await delete(world, uid)
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle()
        await still_has_it(world, uid)
        if end == "node lost":
            await world.client.delete(NODES, "a")
        await world.force_delete("old")
        await world.settle(60)
        assert list(await records(world)) == []
        assert len(world.ledger) == (0 if end == "node lost" else 1)
        assert await world.node_of("new") == ("" if end == "node lost" else "a")

    play(scenario)


@pytest.mark.parametrize("gone", ["ended", "deleted by force"])
def test_a_pod_that_went_while_nobody_led_leaves_it_to_others(play: Play, gone: str) -> None:
    async def scenario(world: World) -> None:
        uid = await begin(world)
        await world.stop_claim_controller()
        await delete(world, uid)
        await world.crash()
        if gone == "ended":
            await world.finish_pod("old")
        else:
            await world.force_delete("old")
        world.start_claim_controller()
        world.start_parley()
        await world.settle(60)
        assert await world.node_of("new") == "a"
        assert list(await records(world)) == []
        assert len(world.ledger) == 1

    play(scenario)


@pytest.mark.parametrize("end", ["finish_pod", "delete_pod"])
def test_nothing_is_written_where_the_pods_end_is_seen_late(play: Play, end: str) -> None:
    """Kubernetes deletes a generated claim after its pod has ended, and a cache may show that first."""

    async def scenario(world: World) -> None:
        calls: list[Call] = []
        client = HeldWatch(FaultClient(world.server.client(), before=calls.append), PODS)
        uid = await begin(world, client)
        client.open.clear()
        await getattr(world, end)("old")
        await asyncio.sleep(10)
        assert uid not in [mirror.metadata.uid for mirror in await world.mirrors()]
        client.open.set()
        await world.settle()
        assert await world.node_of("new") == "a"
        assert [call for call in calls if call.resource == CLAIM_RELEASES and call.writes] == []

    play(scenario)


@pytest.mark.parametrize("same_node", [False, True])
def test_users_of_a_later_claim_of_the_name_do_not_use_the_one_that_was_forced_away(
    play: Play, same_node: bool
) -> None:
    """They get its name, not what its own pods have."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", devices=2 if same_node else 1)
        await world.add_class(shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.settle()
        if not same_node:
            await world.add_node("b", devices=1)
        await world.force_away("disk")
        await world.add_claim("disk")
        await asyncio.sleep(2)
        await world.add_pod("new", claims=["disk"])
        await world.settle()
        assert await world.node_of("new") == ("a" if same_node else "b")
        assert len(world.ledger) == 2
        await world.delete_pod("old")
        await world.settle(60)
        (left,) = world.ledger
        assert [user.name for user in left.pods.values()] == ["new"]
        mirror = await world.mirror("disk")
        assert mirror is not None
        assert [user.name for user in mirror.status.reserved_for] == ["new"]

    play(scenario)


@pytest.mark.parametrize("restored", [False, True], ids=["", "restored"])
def test_so_is_what_an_orphaned_mirror_that_was_cleared_does_not_show(play: Play, restored: bool) -> None:
    """Its Parley claim was removed by force, and the garbage collector left the mirror: nothing is written to it
    any more."""

    async def scenario(world: World) -> None:
        mirror = await begin_with_named(world)
        await world.client.patch(BUILTIN_CLAIMS, "disk", {"metadata": {"ownerReferences": None}}, "default")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, "default")
        await world.settle(5)
        if restored:
            await world.crash()
            world.start_parley()
            await world.settle(5)
        await world.client.patch(
            BUILTIN_CLAIMS,
            "disk",
            {"status": {"allocation": None, "reservedFor": None}},
            "default",
            subresource="status",
        )
        await world.settle(5)
        (record,) = await records(world)
        assert record.spec.claim.uid == mirror.metadata.uid
        await world.crash()
        world.start_parley()
        await world.add_pod("new", "one")
        await world.settle()
        assert (await world.pod("old")).status.phase == "Running"
        assert await world.node_of("new") == ""
        await handed_on(world)

    play(scenario)


@pytest.mark.parametrize("lost_first", [False, True], ids=["deleted before", "deleted meanwhile"])
@pytest.mark.parametrize("how", ["gone", "out of service"])
def test_it_stays_the_pods_though_the_node_was_lost_for_a_moment(play: Play, how: str, lost_first: bool) -> None:
    """The node's pods run on. It owed nothing as long as it was lost."""

    async def scenario(world: World) -> None:
        await begin_with_named(world)
        if not lost_first:
            await world.force_away("disk")
            await world.settle(5)
            assert len(await records(world)) == 1
        await lose(world, how)
        await world.settle(5)
        if lost_first:
            await world.force_away("disk")
            await world.settle(5)
        assert len(await records(world)) == 0
        if how == "gone":
            await world.add_node("a", devices=1)
        else:
            await untaint(world, "a")
        await world.settle(5)
        await world.crash()
        world.start_parley()
        await world.add_pod("new", "one")
        await world.settle()
        assert (await world.pod("old")).status.phase == "Running"
        assert await world.node_of("new") == ""
        await world.delete_pod("old")
        await world.settle()
        assert await world.node_of("new") == "a"
        assert len(await records(world)) == 0

    play(scenario)


def test_a_claim_that_is_released_is_not_taken_over_from_a_mirror_that_is_gone(play: Play) -> None:
    """The mirror was forced away, and the cache shows it still, with its allocation."""

    async def scenario(world: World) -> None:
        client = HeldWatch(world.server.client(), BUILTIN_CLAIMS)
        mirror = await begin_with_named(world, client)
        client.open.clear()
        await delete(world, mirror.metadata.uid)
        await world.add_pod("new", claims=["disk"])
        await world.finish_pod("old")
        await world.settle(10)
        assert len(world.ledger) == 0
        client.open.set()
        await world.settle(60)
        assert await world.node_of("new") == "a"
        (held,) = world.ledger
        assert [user.name for user in held.pods.values()] == ["new"]

    play(scenario)


def test_what_a_bound_pod_holds_is_recorded_whatever_is_wrong_with_its_other_claims(play: Play) -> None:
    """Otherwise the next leader would not know of it, and allocate it a second time."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_class()
        await world.add_template()
        await world.add_claim("disk")
        world.start_parley()
        await world.add_pod("p", "one", claims=["disk"])
        await world.settle()
        assert await world.node_of("p") == "a"

        await world.client.delete(CLAIMS, "disk", "default")
        mirror = BUILTIN_CLAIMS.untyped()
        await world.client.delete(mirror, "disk", "default")
        await world.client.patch(mirror, "disk", {"metadata": {"finalizers": None}}, "default")
        await world.settle()
        (generated,) = [found.metadata.name for found in await world.mirrors()]
        cleared = {"status": {"allocation": None, "reservedFor": None}}
        await world.client.patch(mirror, generated, cleared, "default", subresource="status")
        await world.settle()
        found = await world.mirror(generated)
        assert found is not None
        assert found.status.allocation is not None
        assert [user.name for user in found.status.reserved_for] == ["p"]

    play(scenario)


def test_a_claim_that_was_removed_by_force_and_then_cleared_stays_its_pods_when_another_leads(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin_with_named(world)
        await world.add_pod("new", "one")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, "default")
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "disk", "default")
        nothing = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
        await world.client.patch(BUILTIN_CLAIMS, "disk", nothing, "default", subresource="status")
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle()
        assert not await world.node_of("new")
        await world.delete_pod("old")
        await world.settle()
        assert await world.node_of("new") == "a"

    play(scenario)
