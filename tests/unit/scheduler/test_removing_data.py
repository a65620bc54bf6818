"""Drivers that leave data on nodes: when a named claim ends, its nodes remove it before anything is free."""

import asyncio
from datetime import timedelta

import pytest
from tests.support.faults import FaultClient
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.removing import KEEP, Numbering, Removals, begin, lead

from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, PODS
from parley.kube.client import Call, OutcomeUnknown


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "done"])
def test_data_is_removed_once_when_the_last_pod_is_gone(play: Play, gone: bool) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        assert await world.node_of("first") == "a"
        world.kubelets.stop("a")
        await world.add_pod("next", "one")
        await (world.force_delete("first") if gone else world.finish_pod("first"))
        await world.settle()
        assert removals.done == []
        assert await world.node_of("next") == ""
        world.kubelets.start("a")
        await world.settle()
        (removed,) = removals.done
        assert removed[1] == "a"
        assert await world.node_of("next") == "a"
        assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)


def test_data_stays_while_the_claim_is_kept_and_goes_at_its_deadline(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a", keep=KEEP)
        for name in ("first", "second"):
            await world.add_pod(name, claims=["disk"])
            await world.settle(10)
            await world.delete_pod(name)
            await world.settle(10)
        await world.add_pod("killed", claims=["disk"])
        await world.settle(10)
        await world.force_delete("killed")
        await world.settle(10)
        assert removals.done == []
        await world.settle(KEEP)
        assert removals.done == [("disk", "a")]
        assert len(world.ledger) == 0

    play(scenario)


@pytest.mark.parametrize(
    "restarted",
    [False, True],
    ids=["", "restarted"],
)
def test_data_of_a_kept_claim_goes_also_if_its_class_has_no_node_part_any_more(
    play: Play, restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a", keep=KEEP)
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        await world.finish_pod("p")
        await world.settle()
        await world.client.patch(CLASSES, "gpu", {"nodePart": "None"})
        if restarted:
            await world.crash()
            lead(world)
        await asyncio.sleep(2 * KEEP)
        removals.task.cancel()
        assert (await world.claim("disk")).status.allocation is None
        assert removals.done == [("disk", "a")]

    play(scenario)


@pytest.mark.parametrize("mode", ["", "Immediate"])
def test_the_end_of_a_claim_waits_for_its_node(play: Play, mode: str) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a", keep=KEEP)
        await world.client.delete(CLAIMS, "disk", "default")
        await world.add_claim("data", mode=mode)
        await world.settle(10)
        await world.add_pod("first", claims=["data"])
        await world.settle(10)
        await world.delete_pod("first")
        await world.settle(10)
        world.kubelets.stop("a")
        await world.client.delete(CLAIMS, "data", "default")
        await world.settle(60)
        (condition,) = [c for c in (await world.claim("data")).status.conditions if c.type == "Releasing"]
        assert condition.reason == "RemovingData"
        assert "node a" in condition.message
        world.kubelets.start("a")
        await world.settle(10)
        assert removals.done == [("data", "a")]
        assert not (await world.client.list(CLAIMS)).items
        assert not await world.mirrors()

    play(scenario)


def test_a_node_that_is_out_of_service_is_not_waited_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle(10)
        world.kubelets.stop("a")
        await world.finish_pod("first")
        await world.settle(10)
        assert len(world.ledger) == 1
        await world.taint("a", OUT_OF_SERVICE_TAINT, "NoExecute")
        await world.settle(10)
        assert len(world.ledger) == 0

    play(scenario)


def test_data_of_a_generated_claim_goes_when_it_is_unprepared(play: Play) -> None:
    """Nobody asks for that."""

    async def scenario(world: World) -> None:
        removals = await begin(world, "a")
        await world.add_pod("first", "one")
        await world.settle(10)
        await world.delete_pod("first")
        await world.settle(10)
        assert removals.done == []
        assert len(world.ledger) == 0

    play(scenario)


@pytest.mark.parametrize("how", ["", "restarted", "restarted, and the pod is deleted by force"])
def test_data_of_a_claim_that_was_forced_away_goes_after_its_pod(play: Play, how: str) -> None:
    """A new leader knows of the claim by its ClaimRelease only."""

    async def scenario(world: World) -> None:
        removals = await begin(world, "a")
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        await world.force_away("disk")
        await world.settle()
        if how:
            await world.crash()
            lead(world)
            await world.settle(60)
        assert removals.done == []
        await (world.force_delete("first") if "force" in how else world.delete_pod("first"))
        await world.settle(60)
        assert removals.done == removals.allowed == [("disk", "a")]
        assert len(world.ledger) == 0
        assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)


def test_where_nothing_ran_nothing_is_removed(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a")
        await world.add_claim("data", mode="Immediate")
        await world.settle(10)
        world.kubelets.stop("a")
        await world.client.delete(CLAIMS, "data", "default")
        await world.settle(10)
        assert [claim.metadata.name for claim in (await world.client.list(CLAIMS)).items] == ["disk"]
        assert removals.done == []

    play(scenario)


def test_a_request_to_remove_data_that_comes_late_does_not_end_the_next_allocation(play: Play) -> None:
    async def scenario(world: World) -> None:
        removals = await begin(world, "a", keep=KEEP)
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        await world.finish_pod("first")
        world.kubelets.stop("a")
        await world.settle(KEEP + 60)
        (request,) = (await world.client.list(CLAIM_RELEASES.untyped())).items
        world.kubelets.start("a")
        await world.settle()
        assert len(removals.done) == 1

        await world.add_pod("second", claims=["disk"])
        await world.settle()
        await world.finish_pod("second")
        await world.settle()
        await world.create(
            CLAIM_RELEASES, {"metadata": {"name": request["metadata"]["name"]}, "spec": request["spec"]}
        )
        await world.settle()
        assert not (await world.client.list(CLAIM_RELEASES)).items
        assert (await world.claim("disk")).status.allocation is not None

    play(scenario)


class Uncleared(FaultClient):
    """Named claims are never cleared."""

    async def request(self, call: Call) -> bytes:
        status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
        if call.resource == CLAIMS and status.get("allocation", "") is None:
            raise OutcomeUnknown("connection lost")
        return await super().request(call)


def test_a_claim_whose_data_was_removed_ends_whatever_the_next_leaders_clock_says(play: Play) -> None:
    """By that clock it would still be kept."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(whenUnused={"keepSeconds": KEEP})
        world.start_parley(Uncleared(world.server.client()), drivers=[Numbering()])
        await world.add_claim("disk")
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        await world.finish_pod("first")
        removals = Removals(world)
        await asyncio.sleep(KEEP + 60)
        assert removals.numbers == [1]
        await world.crash()
        exact, later = world.clock, Numbering()
        world.clock, later.allocations = lambda: exact() - timedelta(seconds=KEEP), 1
        world.start_parley(drivers=[later])
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert await world.node_of("second") == "a"
        assert later.allocations == 2, "it is allocated anew"
        assert removals.numbers == [1, 1]

    play(scenario)


async def story(world: World) -> None:
    """Data of a generated claim, of one that ends with its pod, of one that is kept, and of one that is deleted
    while it is kept."""
    await world.add_node("a", devices=4)
    await world.add_class()
    await world.add_class("kept", whenUnused={"keepSeconds": KEEP})
    await world.add_template()
    for claim in ("mine", "gone"):
        await world.add_claim(claim, "kept")
    await world.add_claim("plain")
    await world.add_pod("generated", "one")
    for claim in ("mine", "gone", "plain"):
        await world.add_pod(claim, claims=[claim])
    await world.settle()
    await world.finish_pod("generated")
    for pod in ("mine", "gone", "plain"):
        await world.delete_pod(pod)
    await world.settle()
    await world.client.delete(CLAIMS, "gone", "default")
    await world.settle()
    await asyncio.sleep(KEEP)
    await world.settle()
    await world.delete_pod("generated")
    await world.settle()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_leaves_no_data_and_frees_everything(play: Play, after: bool) -> None:
    async def life(world: World, death: Death) -> int:
        removals = Removals(world)
        async with Executioner(world, lambda client: lead(world, client), death) as executioner:
            await story(world)
        removals.task.cancel()
        assert {name for name, _ in removals.done} == {"mine", "gone", "plain"}
        assert len(world.ledger) == 0
        assert not (await world.client.list(CLAIM_RELEASES)).items
        assert not (await world.client.list(PODS)).items
        claims = (await world.client.list(CLAIMS)).items
        assert sorted(claim.metadata.name for claim in claims) == ["mine", "plain"]
        assert not any(claim.status.allocation for claim in claims)
        return executioner.writes

    at_every_write(play, life, after=after, at_least=20)
