"""Nodes are asked for receipts: one ClaimRelease each, to be answered only when the allocation is cleared."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.builders import Acting, World, a_holding, played, user

from parley.api.models import ClaimRelease
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, NODES
from parley.control.holding import Holding, PreparedOn, Written
from parley.control.release.receipts import record, record_name
from parley.kube.client import Conflict, OutcomeUnknown

HERE = PreparedOn("uid-mirror", "node-1")


async def owing(world: World, *pods: str, **fields: Any) -> Holding:
    """A holding of these pods, of which node-1 may have something prepared."""
    await world.node("node-1")
    holding = a_holding("c", *pods, written=Written.YES, shown_by={"uid-mirror": "c"}, **fields)
    world.ledger.add(holding)
    return holding


async def releases(world: World) -> list[ClaimRelease]:
    return list((await world.admin.list(CLAIM_RELEASES)).items)


def test_a_node_owes_for_every_claim_that_may_have_shown_the_allocation() -> None:
    async def story(world: World) -> None:
        holding = await owing(world)
        holding.shown_by["uid-anew"] = "c"
        await Acting(world).releases.owe(holding, ["node-1"])
        assert holding.owed == {HERE, PreparedOn("uid-anew", "node-1")}
        assert await releases(world) == []

    played(story)


def test_nothing_is_owed_for_what_no_node_can_have_prepared() -> None:
    async def story(world: World) -> None:
        acting = Acting(world)
        holding = await owing(world)
        await acting.releases.owe(holding, ["gone"])
        for without in ({"standalone": True}, {"node_part": False}, {"written": Written.NO}):
            fields: dict[str, Any] = {"written": Written.YES, **without}
            other = a_holding("other", shown_by={"u": "other"}, **fields)
            await acting.releases.owe(other, ["node-1"])
            assert not other.owed
        assert not holding.owed

    played(story)


def test_a_write_that_may_have_arrived_counts() -> None:
    async def story(world: World) -> None:
        holding = await owing(world)
        holding.written = Written.MAYBE
        await Acting(world).releases.owe(holding, ["node-1"])
        assert holding.owed == {HERE}

    played(story)


def test_what_pods_use_may_be_prepared_though_somebody_cleared_its_mirror() -> None:
    async def story(world: World) -> None:
        holding, acting = await owing(world, used=True), Acting(world)
        holding.written = Written.NO
        await acting.releases.owe(holding, ["node-1"])
        assert not holding.owed
        holding.pods[user("p").uid] = user("p")
        await acting.releases.owe(holding, ["node-1"])
        assert holding.owed == {HERE}

    played(story)


def test_a_node_is_noted_once_and_may_answer_only_when_it_is_asked() -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, owed={HERE})
        for _ in range(2):
            await acting.releases.create_missing(holding)
        await world.seen()
        await acting.releases.create_missing(holding)
        (release,) = await releases(world)
        assert release.metadata.name == record_name(HERE)
        assert not release.status.allocation_cleared
        await acting.releases.request_receipts(holding)
        (release,) = await releases(world)
        assert release.status.allocation_cleared

    played(story)


def test_an_answer_ends_what_is_owed() -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, owed={HERE})
        await acting.releases.create_missing(holding)
        await world.seen()
        (release,) = await releases(world)
        acting.releases.changed(None, release)
        assert holding.owed == {HERE}
        acting.releases.changed(release, None)
        assert not holding.owed

    played(story)


def test_an_answer_to_an_earlier_question_does_not_say_that_data_is_removed() -> None:
    """A record made before the claim ended arrives late, under the name of the one that asks for removal."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, owed={HERE})
        await acting.releases.create_missing(holding)
        await world.seen()
        (late,) = await releases(world)
        holding.owe_removal()
        await acting.releases.request_receipts(holding)
        await world.admin.delete(CLAIM_RELEASES, late.metadata.name)
        await world.seen()
        acting.releases.changed(late, None)
        assert holding.owed == {HERE}
        await acting.releases.create_missing(holding)
        (wanted,) = await releases(world)
        assert wanted.spec.remove_data
        acting.releases.changed(wanted, None)
        assert not holding.owed

    played(story)


def lose(call: NumberedCall) -> None:
    """A write does not arrive, and nobody knows."""
    if call.writes:
        raise OutcomeUnknown("no answer")


@pytest.mark.parametrize("failing", [False, True], ids=["deleted", "not_deleted_yet"])
def test_a_request_that_was_retracted_answers_no_later_one(failing: bool) -> None:
    """A request to remove data is deleted while pods use the claim. They end before the cache shows that."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, "p", used=True)
        await world.admin.create(CLAIM_RELEASES, record(replace(holding, removing=True), HERE))
        await world.seen()
        (early,) = await releases(world)
        acting.releases.changed(None, early)
        if failing:
            world.before = lose
            with pytest.raises(OutcomeUnknown):
                await acting.releases.retract(holding)
            world.before = lambda call: None
            holding.owed.clear()
        else:
            await acting.releases.retract(holding)
            await acting.releases.retract(holding)
        acting.releases.changed(early, early)
        assert not holding.owed
        holding.pods.clear()
        holding.owe_removal()
        await acting.releases.create_missing(holding)
        await acting.releases.create_missing(holding)
        (request,) = await releases(world)
        assert request.metadata.uid != early.metadata.uid
        acting.releases.changed(early, request)
        assert holding.owed == {HERE}
        await acting.releases.request_receipts(holding)
        acting.releases.changed(request, None)
        assert not holding.owed

    played(story)


def test_a_retraction_leaves_what_the_node_owes_for_a_forced_deletion() -> None:
    """A request to remove data came late, and has the name of the ClaimRelease for that."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, "p", used=True)
        await world.admin.create(CLAIM_RELEASES, record(replace(holding, removing=True), HERE))
        await world.seen()
        (late,) = await releases(world)
        await acting.releases.owe(holding, ["node-1"])
        await acting.releases.create_missing(holding)
        acting.releases.changed(None, late)
        acting.releases.changed(late, None)  # deleted by an earlier leader
        assert holding.owed == {HERE}
        acting.releases.changed(None, late)
        await acting.releases.retract(holding)
        assert holding.owed == {HERE}
        await acting.releases.create_missing(holding)
        (receipt,) = await releases(world)
        assert not receipt.spec.remove_data

    played(story)


def test_what_is_owed_is_noted_while_the_cache_shows_a_request_that_another_has_replaced() -> None:
    """The API server refuses to delete by its UID the object that has its name by now."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, "p", used=True)
        await world.admin.create(CLAIM_RELEASES, record(replace(holding, removing=True), HERE))
        await world.seen()

        def refuse(call: NumberedCall) -> None:
            if call.verb == "delete":
                raise Conflict(409, "Conflict", "Precondition failed: UID in precondition")

        world.before = refuse
        await acting.releases.retract(holding)
        holding.owed.add(PreparedOn("uid-anew", "node-1"))
        await acting.releases.create_missing(holding)
        assert len(await releases(world)) == 2

    played(story)


def test_a_request_to_remove_data_that_comes_while_a_claim_is_released_is_not_answered() -> None:
    """The claim may stay allocated without users, and its data with it."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, used=True, owed={HERE})
        await world.admin.create(CLAIM_RELEASES, record(replace(holding, removing=True), HERE))
        await world.seen()
        (late,) = await releases(world)
        acting.releases.changed(None, late)
        await acting.releases.create_missing(holding)
        await acting.releases.request_receipts(holding)
        assert not any(one.spec.remove_data and one.status.allocation_cleared for one in await releases(world))
        await world.seen()
        await acting.releases.create_missing(holding)
        (receipt,) = await releases(world)
        acting.releases.changed(late, receipt)
        await acting.releases.request_receipts(holding)
        (receipt,) = await releases(world)
        assert receipt.status.allocation_cleared
        assert not receipt.spec.remove_data
        acting.releases.changed(receipt, None)
        assert not holding.owed

    played(story)


def test_a_node_out_of_service_owes_nothing_and_its_record_goes() -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, owed={HERE})
        await acting.releases.create_missing(holding)
        taint = {"key": OUT_OF_SERVICE_TAINT, "effect": "NoExecute"}
        await world.admin.patch(NODES, "node-1", {"spec": {"taints": [taint]}})
        await world.seen()
        await acting.releases.create_missing(holding)
        assert await releases(world) == []
        await world.seen()
        await acting.releases.create_missing(holding)
        assert not holding.owed

    played(story)


def test_a_record_that_the_cache_never_shows_goes_with_what_is_owed() -> None:
    """It was created and deleted while the watch was away."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await owing(world, owed={HERE})
        taint = {"key": OUT_OF_SERVICE_TAINT, "effect": "NoExecute"}
        await world.admin.patch(NODES, "node-1", {"spec": {"taints": [taint]}})
        await world.seen()
        await world.admin.create(CLAIM_RELEASES, record(holding, HERE))
        await acting.releases.create_missing(holding)
        assert await releases(world) == []
        assert not holding.owed

    played(story)
