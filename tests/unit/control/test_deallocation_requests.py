"""Standalone drivers are asked to deallocate, and asked again where that may have been in vain."""

from typing import Any

import pytest
from tests.support.faults import NumberedCall, nothing
from tests.unit.control.builders import NAMESPACE, Acting, World, a_holding, played
from tests.unit.control.test_deallocation import CLAIM, ENDED, recorded

from parley.api.builtin import Pod
from parley.api.resources import CLAIMS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Written
from parley.control.objects.pod import reference
from parley.kube.client import OutcomeUnknown
from parley.sdk.recorded import NOTHING_ALLOCATED

RECORD: dict[str, Any] = {"driverName": "outside.example.com", "allocation": {"shareable": False}}


async def outside(world: World, pod: Pod) -> Holding:
    """Claim c, allocated by a standalone driver and recorded for the pod."""
    await world.class_(driver="outside.example.com")
    claim = await world.claim()
    mirror, mine = await world.mirror(claim), reference(pod)
    await world.patch_status(CLAIMS, "c", RECORD)
    holding = a_holding("c", uid=claim.metadata.uid, pods={mine.uid: mine}, standalone=True)
    world.ledger.add(holding)
    return await recorded(world, PodClaim("c", "c", mirror, claim, holding=holding), holding)


def test_a_driver_outside_is_asked_and_nobody_joins_until_its_record_is_empty() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await outside(world, pod)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        await world.seen()
        now = await world.the_claim()
        assert (now.status.deallocation_requested, now.status.reserved_for) == (True, ())
        assert acting.closed == [reference(pod)]
        with pytest.raises(Busy):
            acting.allocator.join(pod, [PodClaim("c", "c", holding=holding)])
        acting.deallocator.record_changed(now, gone=False)
        assert world.ledger.of_claim(NAMESPACE, "c") is holding
        acting.deallocator.record_changed(now, gone=True)
        assert len(world.ledger) == 0

    played(story)


@pytest.mark.parametrize("done", [True, False], ids=["deallocated", "not-asked"])
def test_a_driver_outside_that_may_have_been_asked_is_asked_again_unless_it_has_deallocated(done: bool) -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await outside(world, pod)

        def lose(call: NumberedCall) -> None:
            if call.writes and call.resource == CLAIMS:
                raise OutcomeUnknown("connection lost")

        world.after, world.before = (lose, nothing) if done else (nothing, lose)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        world.after = world.before = nothing
        assert CLAIM in world.woken
        with pytest.raises(Busy):
            acting.allocator.join(pod, [PodClaim("c", "c", holding=holding)])
        if done:
            await world.patch_status(CLAIMS, "c", NOTHING_ALLOCATED)
        before = len(world.writes)
        await world.seen()
        await acting.deallocator.ask_again(holding)
        if done:
            assert len(world.ledger) == 0
        else:
            assert len(world.writes) == before + 1
            assert (await world.the_claim()).status.deallocation_requested

    played(story)


def test_what_a_driver_outside_deallocates_before_the_answer_comes_is_free() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await outside(world, pod)
        await world.patch_status(CLAIMS, "c", {**NOTHING_ALLOCATED, "reservedFor": None})
        acting.deallocator.record_changed(await world.the_claim(), gone=False)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        assert len(world.ledger) == 0

    played(story)


@pytest.mark.parametrize("recorded_for_it", [True, False])
def test_a_pod_that_joined_a_claim_while_its_driver_deallocated_it_does_not_hold_it(recorded_for_it: bool) -> None:
    """The cache showed the deallocation after the pod had joined: the API server has refused to record the pod."""

    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"], nodeName="node-1"), Acting(world)
        holding = await outside(world, pod)
        holding.written = Written.YES if recorded_for_it else Written.NO
        await world.patch_status(CLAIMS, "c", {**NOTHING_ALLOCATED, "reservedFor": None})
        dropped = acting.deallocator.record_changed(await world.the_claim(), gone=False)
        assert dropped is not recorded_for_it
        assert len(world.ledger) == recorded_for_it

    played(story)


def test_a_driver_that_allocated_again_after_it_had_deallocated_is_asked_again() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await outside(world, pod)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        await world.seen()
        before = len(world.writes)
        await acting.deallocator.ask_again(holding)
        assert len(world.writes) == before  # the request stands

        await world.patch_status(CLAIMS, "c", NOTHING_ALLOCATED)
        await world.patch_status(CLAIMS, "c", RECORD)
        await world.seen()
        await acting.deallocator.ask_again(holding)
        assert (await world.the_claim()).status.deallocation_requested

    played(story)
