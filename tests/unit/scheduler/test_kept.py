"""Claims of a class with `whenUnused` stay allocated without users, until their deadline, whoever leads."""

import asyncio
from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.killed import Play

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, PODS
from parley.control.objects.mirror import is_shareable
from parley.kube.clock import moment

KEEP = 600
"""Seconds."""

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, *nodes: str, shareable: bool = False, keep: int | None = KEEP) -> None:
    """Nodes with a device each, and the claim "disk"."""
    for node in nodes:
        await world.add_node(node, devices=1)
    unused: dict[str, Any] = {"whenUnused": {"keepSeconds": keep}} if keep else {}
    await world.add_class(shareable=shareable, **unused)
    await world.add_template()
    world.start_parley()
    await world.add_claim("disk")
    await world.settle()


async def run_pod(world: World, name: str, **spec: Any) -> str:
    """A pod with the claim runs, and is done. Returns where."""
    await world.add_pod(name, claims=["disk"], **spec)
    await world.settle(10)
    node = await world.node_of(name)
    await world.finish_pod(name)
    await world.settle(10)
    return node


async def is_allocated(world: World) -> bool:
    return (await world.claim("disk")).status.allocation is not None


def test_the_next_pod_runs_where_the_last_one_did_until_the_deadline(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b", "c")
        first = await run_pod(world, "first")
        ended = asyncio.get_running_loop().time()
        claim = await world.claim("disk")
        assert claim.status.allocation is not None
        assert claim.status.reserved_for == ()
        until = moment(claim.status.kept_until or "")
        assert until is not None
        assert KEEP - 25 <= (until - world.clock()).total_seconds() <= KEEP
        for i in range(2):  # the other nodes fill up
            await world.add_pod(f"other-{i}", "one")
        await world.settle()
        assert first not in [await world.node_of(f"other-{i}") for i in range(2)]
        assert await run_pod(world, "second") == first
        until_again = moment((await world.claim("disk")).status.kept_until or "")
        assert until_again is not None
        assert until_again > until
        await asyncio.sleep(ended + KEEP + 5 - asyncio.get_running_loop().time())
        assert await is_allocated(world)
        await world.settle(KEEP)
        claim = await world.claim("disk")
        assert claim.status.allocation is None
        assert claim.status.kept_until is None
        assert len(world.ledger) == 2

    play(scenario)


def test_a_pod_that_ends_while_the_class_is_replaced_does_not_end_what_is_kept(play: Play) -> None:
    """As `kubectl replace --force` does. It sets no new deadline either: nobody knows how long."""

    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        first = await run_pod(world, "first")
        until = (await world.claim("disk")).status.kept_until
        await world.add_pod("second", claims=["disk"])
        await world.settle(10)
        await world.client.delete(CLASSES, "gpu")
        await asyncio.sleep(1)
        await world.finish_pod("second")
        await asyncio.sleep(1)
        await world.add_class(shareable=False, whenUnused={"keepSeconds": KEEP})
        await world.settle(10)
        assert (await world.claim("disk")).status.kept_until == until
        assert await run_pod(world, "third") == first

    play(scenario)


def test_without_the_field_nothing_is_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", keep=None)
        await run_pod(world, "first")
        assert not await is_allocated(world)

    play(scenario)


def test_the_device_of_a_kept_claim_is_for_nobody_else(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await run_pod(world, "first")
        await world.add_pod("other", "one")
        await world.settle(60)
        assert await world.node_of("other") == ""
        await world.settle(KEEP)
        assert await world.node_of("other") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender asks before anything is allocated
def test_what_a_pod_that_was_never_bound_had_is_not_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await add_grump(world, "a")
        await world.add_pod("waits", claims=["disk"], affinity=APART)
        await world.settle()
        assert await is_allocated(world)
        await world.delete_pod("waits")
        await world.settle(10)
        assert not await is_allocated(world)
        assert (await world.claim("disk")).status.kept_until is None

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_was_never_bound_ends_nothing_that_is_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await run_pod(world, "first")
        until = (await world.claim("disk")).status.kept_until
        await add_grump(world, "a")
        await world.add_pod("waits", claims=["disk"], affinity=APART)
        await world.settle()
        await world.delete_pod("waits")
        await world.settle(10)
        assert await is_allocated(world)
        assert (await world.claim("disk")).status.kept_until == until
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_it_is_kept_for_a_pod_whose_whole_life_was_seen_at_once(play: Play) -> None:
    """kube-scheduler let it in, and it ended, before anybody looked at it; the last known user was never bound."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True, whenUnused={"keepSeconds": KEEP})
        client = HeldWatch(world.server.client(), PODS)
        world.start_parley(client)
        await world.add_claim("disk")
        await add_grump(world, "a")
        await world.add_pod("waits", claims=["disk"], affinity=APART)
        await world.settle()
        assert await is_allocated(world)

        client.open.clear()
        await world.add_pod("quick", claims=["disk"])
        await asyncio.sleep(1)
        assert await world.node_of("quick") == "a"
        await world.finish_pod("quick")
        await world.delete_pod("waits")
        await asyncio.sleep(1)
        client.open.set()
        await world.settle(10)
        claim = await world.claim("disk")
        assert claim.status.allocation is not None
        assert claim.status.kept_until
        assert claim.status.reserved_for == ()
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


def test_a_claim_that_is_deleted_is_not_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await run_pod(world, "first")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(10)
        await nothing_is_left(world)

    play(scenario)


@pytest.mark.parametrize("away", [10, 2 * KEEP], ids=["in time", "too late"])
def test_a_new_leader_goes_by_the_deadline(play: Play, away: int) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        first = await run_pod(world, "first")
        until = (await world.claim("disk")).status.kept_until
        await world.crash()
        await asyncio.sleep(away)
        world.start_parley()
        await asyncio.sleep(5)
        if away < KEEP:
            assert await is_allocated(world)
            assert (await world.claim("disk")).status.kept_until == until
            assert await run_pod(world, "second") == first
            await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


def test_a_pod_that_ends_while_nobody_leads_is_followed_by_the_whole_time(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle(10)
        await world.crash()
        await world.finish_pod("first")
        await asyncio.sleep(100)
        world.start_parley()
        await asyncio.sleep(10)
        assert await is_allocated(world)
        until = moment((await world.claim("disk")).status.kept_until or "")
        assert until is not None
        assert (until - world.clock()).total_seconds() > KEEP - 20
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


def test_what_the_class_says_when_a_pod_leaves_counts(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await run_pod(world, "first")
        await world.client.patch(CLASSES, "gpu", {"whenUnused": None})
        await world.settle(30)
        assert await is_allocated(world)
        await run_pod(world, "second")
        assert not await is_allocated(world)
        assert (await world.claim("disk")).status.kept_until is None

    play(scenario)


def test_pods_that_share_it_keep_it_and_the_last_one_counts(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b", shareable=True)
        for name in ("first", "second"):
            await world.add_pod(name, claims=["disk"])
        await world.settle(10)
        node = await world.node_of("first")
        assert await world.node_of("second") == node
        await world.finish_pod("first")
        await world.settle(KEEP)
        assert await is_allocated(world)
        await world.finish_pod("second")
        await asyncio.sleep(KEEP / 2)
        assert await is_allocated(world)
        assert await run_pod(world, "third") == node
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


def test_after_a_forced_deletion_it_is_kept_when_the_node_has_answered(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle(10)
        world.kubelets.stop("a")
        await world.force_delete("first")
        await world.settle(10)
        assert await is_allocated(world)
        world.kubelets.start("a")
        await world.settle(10)
        assert await is_allocated(world)
        assert (await world.claim("disk")).status.kept_until
        assert await run_pod(world, "second") == "a"
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


@pytest.mark.parametrize("away", [KEEP * 0.75, KEEP * 1.5], ids=["before the deadline", "after it"])
def test_its_time_begins_when_the_last_node_has_answered(play: Play, away: float) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle(10)
        world.kubelets.stop("a")  # the pod's containers run on
        await world.force_delete("first")
        await world.settle(away)
        world.kubelets.start("a")
        await world.settle(KEEP / 4)
        assert await is_allocated(world)
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)


def test_its_built_in_claim_may_be_made_anew_meanwhile(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        first = await run_pod(world, "first")
        before = await world.mirror("disk")
        assert isinstance(before, BuiltinClaim)
        await world.client.delete(BUILTIN_CLAIMS, "disk", "default")
        await world.settle(10)
        after = await world.mirror("disk")
        assert isinstance(after, BuiltinClaim)
        assert after.metadata.uid != before.metadata.uid
        assert await run_pod(world, "second") == first

    play(scenario)


def test_it_stays_exclusive_though_its_class_becomes_shareable(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        await run_pod(world, "first")
        await world.client.patch(CLASSES, "gpu", {"shareable": True})
        await world.client.delete(BUILTIN_CLAIMS, "disk", "default")
        await world.settle(10)
        after = await world.mirror("disk")
        assert isinstance(after, BuiltinClaim)
        assert not is_shareable(after)
        await world.client.patch(CLASSES, "gpu", {"shareable": False})
        await world.add_pod("second", claims=["disk"])
        await world.add_pod("third", claims=["disk"])
        await world.settle(10)
        assert sorted([await world.node_of("second"), await world.node_of("third")])[0] == ""

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_it_is_kept_too_if_it_was_used_while_nobody_led_and_its_last_known_user_was_never_bound(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", shareable=True)
        await world.add_pod("waits", claims=["disk"], schedulerName="away")
        await world.settle(10)
        assert await is_allocated(world)
        await world.crash()
        assert await run_pod(world, "unseen") == "a"
        await world.delete_pod("unseen")
        world.start_parley()
        await world.settle(10)
        await world.delete_pod("waits")
        await world.settle(10)
        assert await is_allocated(world)
        await world.settle(KEEP)
        assert not await is_allocated(world)

    play(scenario)
