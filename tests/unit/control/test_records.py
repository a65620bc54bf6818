"""Writes of holdings are safe to repeat, bound to the state they were decided on, and settled when unheard."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from tests.support.conditions import condition
from tests.support.faults import NumberedCall
from tests.unit.control.allocated import fresh, generated, named
from tests.unit.control.builders import NAMESPACE, TOKENS, World, a_holding, played, user

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Written
from parley.control.objects.mirror import consumer, nodes_of
from parley.control.objects.pod import reference
from parley.control.records import run_all
from parley.kube.client import Conflict, NotFound, OutcomeUnknown
from parley.sdk import Allocation


def users(status: Any) -> list[str]:
    return [user.name for user in status.reserved_for]


def test_a_named_claim_and_its_mirror_show_allocation_and_users() -> None:
    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod())
        await world.records.write([claim])
        shown, record = (await world.the_mirror()).status, (await world.the_claim()).status
        assert shown.allocation is not None
        assert nodes_of(shown.allocation) == ("node-1",)
        assert record.allocation is not None
        assert (record.driver_name, condition(await world.the_claim(), "Allocated").status) == (TOKENS, "True")
        assert users(shown) == users(record) == ["p"]
        assert holding.written is Written.YES

    played(story)


def test_writing_it_again_changes_nothing() -> None:
    async def story(world: World) -> None:
        claim, _ = await named(world, await world.pod())
        await world.records.write([claim])
        before = world.server.resource_version
        await world.records.write([await fresh(world, claim)])
        assert world.server.resource_version == before

    played(story)


@pytest.mark.parametrize("shareable", [False, True])
def test_whom_the_scheduler_let_in_is_kept_in_a_shareable_claim_only(shareable: bool) -> None:
    async def story(world: World) -> None:
        claim, _ = await named(world, await world.pod(), shareable=shareable)
        other = await world.pod("other")
        body: dict[str, Any] = {"allocation": {"devices": {}}, "reservedFor": [consumer(reference(other))]}
        await world.patch_status(BUILTIN_CLAIMS, "c", body)
        claim = await fresh(world, claim)
        if shareable:
            await world.records.write([claim])
            assert users((await world.the_mirror()).status) == ["p", "other"]
        else:
            with pytest.raises(Busy):
                await world.records.write([claim])

    played(story)


def test_a_mirror_that_somebody_changed_since_is_not_written() -> None:
    async def story(world: World) -> None:
        pod = await world.pod()
        claim, holding = await generated(world, pod)
        await world.admin.patch(BUILTIN_CLAIMS, claim.name, {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
        with pytest.raises(Conflict):
            await world.records.write([claim])
        assert holding.written is Written.NO

    played(story)


def test_nothing_is_written_for_a_pod_that_has_left_the_claim_meanwhile() -> None:
    """An immediate or kept claim stays allocated, and its mirror shows that for users alone."""

    async def story(world: World) -> None:
        pod = await world.pod()
        claim, holding = await named(world, pod, shareable=False, immediate=True)
        world.ledger.leave(holding, reference(pod))
        with pytest.raises(Busy):
            await world.records.write([claim])
        assert (await world.the_mirror()).status.allocation is None

    played(story)


def test_what_others_reserved_is_not_cleared() -> None:
    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod(), shareable=True)
        await world.records.write([claim])
        other = await world.pod("other")
        await world.patch_status(BUILTIN_CLAIMS, "c", {"reservedFor": [consumer(reference(other))]})
        with pytest.raises(Busy):
            await world.records.clear_mirror(holding)
        assert (await world.the_mirror()).status.allocation is not None

    played(story)


@pytest.mark.parametrize("answered", [True, False])
def test_a_mirror_that_has_lost_its_owner_is_cleared_like_any_other(answered: bool) -> None:
    """`--cascade=orphan`: the claim is deleted, and pods could run with what its mirror shows."""

    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod())

        def lose(call: NumberedCall) -> None:
            if call.writes and call.resource == BUILTIN_CLAIMS:
                raise OutcomeUnknown("no answer")

        world.after = world.after if answered else lose
        with nullcontext() if answered else pytest.raises(OutcomeUnknown):
            await world.records.write([claim])
        world.after = lambda call: None
        await world.admin.patch(BUILTIN_CLAIMS, "c", {"metadata": {"ownerReferences": None}}, NAMESPACE)
        await world.seen()
        assert (await world.the_mirror()).status.allocation is not None
        await world.records.clear_mirror(holding)
        assert (await world.the_mirror()).status.allocation is None

    played(story)


@pytest.mark.parametrize(
    ("node", "phase"),
    [
        ("node-1", "Running"),
        ("node-1", "Pending"),
        ("node-1", "Succeeded"),
        ("node-2", "Running"),
        ("", "Pending"),
    ],
)
def test_whom_a_scheduler_let_in_is_found_after_the_mirror_was_forced_away(node: str, phase: str) -> None:
    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod(), shareable=True)
        await world.records.write([claim])
        await world.seen()
        bound = {"nodeName": node} if node else {}
        await world.pod("other", claims=["c"], **bound)
        await world.patch_status(PODS, "other", {"phase": phase})
        await world.admin.patch(BUILTIN_CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.admin.delete(BUILTIN_CLAIMS, "c", NAMESPACE)
        if (node, phase) == ("node-1", "Running"):
            with pytest.raises(Busy):
                await world.records.clear_mirror(holding)
        else:
            await world.records.clear_mirror(holding)

    played(story)


def test_a_pod_that_leaves_is_taken_out_and_the_last_one_takes_the_mirrors_allocation_along() -> None:
    async def story(world: World) -> None:
        first, second = await world.pod("first"), await world.pod("second")
        claim, holding = await named(world, first, second, shareable=True, immediate=True)
        await world.records.write([claim])
        await world.seen()
        await world.records.unreserve(holding, reference(first))
        world.ledger.leave(holding, reference(first))
        assert users((await world.the_mirror()).status) == users((await world.the_claim()).status) == ["second"]
        await world.seen()
        await world.records.unreserve(holding, reference(second))
        record = (await world.the_claim()).status
        assert (await world.the_mirror()).status.allocation is None
        assert record.allocation is not None
        assert (users(record), condition(await world.the_claim(), "Allocated").status) == ([], "True")

    played(story)


def test_nothing_is_left_to_clear_of_a_claim_that_is_gone() -> None:
    async def story(world: World) -> None:
        holding = a_holding("gone", "p")
        await world.records.clear_claim(holding)
        await world.records.clear_mirror(holding)
        await world.records.unreserve(holding, next(iter(holding.pods.values())))

    played(story)


def test_nothing_of_a_claim_that_is_gone_is_written_to_the_one_that_has_its_name() -> None:
    async def story(world: World) -> None:
        claim, _ = await named(world, await world.pod(), shareable=True)
        await world.records.write([claim])
        claim, former = await fresh(world, claim), a_holding("c", "one", "other", standalone=True)
        before = world.server.resource_version
        await world.records.unreserve(former, user("one"))
        with pytest.raises(NotFound):
            await world.records.write([replace(claim, holding=former)])
        assert world.server.resource_version == before

    played(story)


def test_an_offer_names_nodes_and_is_declined_with_the_reason() -> None:
    async def story(world: World) -> None:
        claim, _ = await generated(world, await world.pod())
        (offered,) = await world.records.offer([claim], {"licence": TOKENS}, ["node-1", "node-2"])
        assert offered.status.allocation is not None
        assert nodes_of(offered.status.allocation) == ("node-1", "node-2")
        await world.records.decline([PodClaim("licence", claim.name, offered)], "none are left")
        (device,) = (await world.the_mirror(claim.name)).status.devices
        assert [(c.type, c.message) for c in device.conditions] == [("parley.dev/declined", "none are left")]

    played(story)


def test_an_answered_offer_keeps_its_nodes_and_tells_what_was_found() -> None:
    async def story(world: World) -> None:
        claim, holding = await generated(world, await world.pod())
        (offered,) = await world.records.offer([claim], {"licence": TOKENS}, ["node-1", "node-2"])
        holding.offered, holding.allocation = True, Allocation(data={"count": 1})
        await world.records.write([PodClaim("licence", claim.name, offered, holding=holding)])
        status = (await world.the_mirror(claim.name)).status
        assert status.allocation is not None
        assert nodes_of(status.allocation) == ("node-1", "node-2")
        assert [c.type for device in status.devices for c in device.conditions] == ["parley.dev/allocated"]

    played(story)


def test_what_others_use_is_recorded_before_them() -> None:
    """A view shows the data of another claim: while that one's record is missing, so is the view's."""

    async def story(world: World) -> None:
        pod = await world.pod()
        used, holding = await named(world, pod)
        view, viewing = await generated(world, pod)
        viewing.uses = (holding.uid,)

        def refuse(call: NumberedCall) -> None:
            if call.writes and call.resource == CLAIMS:
                raise OutcomeUnknown("no answer")

        world.before = refuse
        with pytest.raises(OutcomeUnknown):
            await world.records.write([view, used])
        assert (await world.the_mirror(view.name)).status.allocation is None
        world.before = lambda call: None
        await world.records.write([view, await fresh(world, used)])
        assert (await world.the_mirror(view.name)).status.allocation is not None
        assert (await world.the_claim()).status.allocation is not None

    played(story)


def test_one_write_that_fails_cuts_no_other_short() -> None:
    async def story(world: World) -> None:
        ended: list[str] = []

        async def slow() -> None:
            await asyncio.sleep(1)
            ended.append("slow")

        async def failing(words: str) -> None:
            raise RuntimeError(words)

        with pytest.raises(RuntimeError, match="first"):
            await run_all([failing("first"), slow(), failing("second")])
        assert ended == ["slow"]

    played(story)
