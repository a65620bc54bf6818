"""The API lets go of what a pod held first, then the driver, then the ledger; nobody gets it any sooner."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control import allocated
from tests.unit.control.builders import (
    NAMESPACE,
    TOKENS,
    Acting,
    World,
    a_holding,
    pending,
    played,
    pod_manifest,
    user,
)

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import demand_of
from parley.control.holding import Holding, Phase, PreparedOn
from parley.control.objects.class_request import class_request
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.control.records import Records
from parley.control.release.deallocation import ReleaseContext
from parley.kube.client import Conflict, ServerError
from parley.sdk import Held

ENDED = ReleaseContext(pod_terminal=True, bound=True)
UNPLACED = ReleaseContext(pod_terminal=False, bound=False)

DRIVER = ("driver", TOKENS)
CLAIM = ("claim", NAMESPACE, "c")


async def named(world: World, *pods: Pod, shareable: bool = False, **fields: Any) -> Holding:
    """Claim c, allocated and recorded for the pods."""
    return await recorded(world, *await allocated.named(world, *pods, shareable=shareable, **fields))


async def generated(world: World, pod: Pod) -> Holding:
    """The pod's generated claim, allocated and recorded."""
    await world.class_()
    return await recorded(world, *await allocated.generated(world, pod))


async def unused(world: World, phase: Phase) -> Holding:
    """Claim c, which its pod has left: it is reserved for nobody."""
    holding = await named(world, await world.pod(claims=["c"]))
    await world.patch_status(BUILTIN_CLAIMS, "c", {"reservedFor": None})
    world.ledger.release(holding)
    holding.phase = phase
    return holding


async def recorded(world: World, claim: PodClaim, holding: Holding) -> Holding:
    if not holding.standalone:
        held = Held(holding.uid, "node-1", (), {"pool": "licence", "node": "node-1", "count": 4})
        world.state.drivers[TOKENS].restore(held)
    await world.records.write([claim])
    await world.seen()
    return holding


def held_by_driver(world: World, holding: Holding) -> bool:
    """Whether the driver has none of its four tokens to give, which the holding has."""
    request = demand_of(world.state.drivers, user("asks"), [pending("asks")]).requests[TOKENS]
    return not world.state.drivers[TOKENS].viable(request, ["node-1"])["asks"].viable


async def finish(world: World, pod: Pod) -> None:
    await world.patch_status(PODS, pod.metadata.name, {"phase": "Succeeded"})


def test_what_the_last_pod_leaves_is_free_for_the_driver_the_ledger_and_whoever_waits() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await named(world, pod)
        await acting.deallocator.release(reference(pod), [holding], UNPLACED)
        assert (await world.the_mirror()).status.allocation is None
        assert (await world.the_claim()).status.allocation is None
        assert not held_by_driver(world, holding)
        assert len(world.ledger) == 0
        assert world.woken == [DRIVER, CLAIM]

    played(story)


def test_a_generated_claim_that_goes_with_its_pod_costs_no_write() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(templates=["licence"]), Acting(world)
        holding = await generated(world, pod)
        await finish(world, pod)
        before = len(world.writes)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        assert len(world.writes) == before
        assert (len(world.ledger), held_by_driver(world, holding)) == (0, False)
        assert world.woken == [DRIVER]

    played(story)


def test_one_that_another_pod_names_is_cleared_though_its_own_pod_departed() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(templates=["licence"]), Acting(world)
        holding = await generated(world, pod)
        await finish(world, pod)
        await world.pod("other", claims=["p-licence"])
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        assert (await world.the_mirror("p-licence")).status.allocation is None

    played(story)


def test_if_the_api_does_not_let_go_the_driver_keeps_it_and_pods_may_join_as_before() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await named(world, pod)

        def fail(call: NumberedCall) -> None:
            if call.writes and call.resource == BUILTIN_CLAIMS:
                raise ServerError(500, "InternalError", "out of order")

        world.before = fail
        with pytest.raises(ServerError):
            await acting.deallocator.release(reference(pod), [holding], UNPLACED)
        assert held_by_driver(world, holding)
        assert world.ledger.of_pod(reference(pod)) == [holding]
        assert world.woken == []
        acting.allocator.join(pod, [PodClaim("c", "c", holding=holding)])

    played(story)


def test_a_shared_claim_stays_for_the_others() -> None:
    async def story(world: World) -> None:
        first, second = await world.pod("first", claims=["c"]), await world.pod("second", claims=["c"])
        acting = Acting(world)
        holding = await named(world, first, second, shareable=True)
        await acting.deallocator.release(reference(first), [holding], ENDED)
        assert [user.name for user in (await world.the_mirror()).status.reserved_for] == ["second"]
        assert held_by_driver(world, holding)
        assert (world.ledger.of_pod(reference(first)), world.ledger.of_pod(reference(second))) == ([], [holding])

    played(story)


def test_an_immediate_claim_keeps_its_allocation_without_users() -> None:
    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await named(world, pod, immediate=True)
        await acting.deallocator.release(reference(pod), [holding], ENDED)
        assert (await world.the_mirror()).status.allocation is None
        assert (await world.the_claim()).status.allocation is not None
        assert held_by_driver(world, holding)
        assert world.ledger.of_claim(NAMESPACE, "c") is holding

    played(story)


def test_a_pod_that_does_not_use_it_gives_nothing_back() -> None:
    async def story(world: World) -> None:
        pod, other = await world.pod(claims=["c"]), await world.pod("other")
        holding = await named(world, pod)
        await Acting(world).deallocator.release(reference(other), [holding], ENDED)
        assert world.ledger.of_pod(reference(pod)) == [holding]
        assert world.woken == []

    played(story)


def test_what_was_cleared_and_is_reserved_again_is_not_taken_from_the_pod() -> None:
    async def story(world: World) -> None:
        pod = await world.pod(claims=["c"])
        holding = await named(world, pod)
        with pytest.raises(Busy):
            await Acting(world).deallocator.release(reference(pod), [holding], UNPLACED, cleared=[holding])
        assert held_by_driver(world, holding)

    played(story)


def test_a_pod_that_the_scheduler_let_in_meanwhile_uses_it_from_then_on() -> None:
    async def story(world: World) -> None:
        first, second = await world.pod("first", claims=["c"]), await world.pod("second", claims=["c"])
        holding = await named(world, first, shareable=True)
        reserved = [consumer(reference(pod)) for pod in (first, second)]
        await world.patch_status(BUILTIN_CLAIMS, "c", {"reservedFor": reserved})
        await Acting(world).deallocator.release(reference(first), [holding], ENDED)
        assert world.ledger.of_pod(reference(second)) == [holding]
        assert held_by_driver(world, holding)

    played(story)


@pytest.mark.parametrize("prepared", [(), ("node-1",)], ids=["it stays allocated", "its node owes a receipt"])
def test_nobody_is_shut_out_of_a_claim_without_users_who_was_let_in_unseen(prepared: tuple[str, ...]) -> None:
    async def story(world: World) -> None:
        first, acting = await world.pod("first", claims=["c"]), Acting(world)
        holding = await named(world, first, shareable=True, immediate=True)
        second = pod_manifest("second", claims=["c"], nodeName="node-1")
        let_in = reference(
            await world.admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", **second}, NAMESPACE)
        )
        holding.unseen_users = {let_in.uid: let_in}  # the cache has yet to show it
        context = ReleaseContext(pod_terminal=True, bound=True, prepared_on=prepared)
        with pytest.raises(Busy) if prepared else nullcontext():
            await acting.deallocator.release(reference(first), [holding], context)
        assert holding.joinable
        await world.seen()
        await acting.deallocator.release(reference(first), [holding], context)
        assert holding.joinable
        assert world.ledger.of_pod(let_in) == ([holding] if prepared else [])

    played(story)


def test_when_a_pod_has_ended_its_stand_ins_go() -> None:
    async def story(world: World) -> None:
        pod = await world.pod(templates=["licence"])
        await world.class_(driver="outside.example.com")
        mirror = await world.generated(pod)
        claim = PodClaim("licence", mirror.metadata.name, mirror, class_request=class_request(mirror))
        await world.records.stand_ins.create(pod, claim)
        await world.seen()
        await Acting(world).deallocator.pod_ended(reference(pod))
        assert not (await world.admin.list(CLAIMS, NAMESPACE)).items

    played(story)


def test_what_an_earlier_leader_left_halfway_is_free_though_its_node_needed_no_receipt_meanwhile() -> None:
    """The answer to the deletion of the ClaimRelease was lost: only the change shows that nothing is owed."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await unused(world, Phase.UNRESERVING)
        with pytest.raises(Conflict):  # what was just written is not in the cache yet: it is tried again
            await acting.deallocator.sync(holding.uid)
        await world.seen()
        await acting.deallocator.sync(holding.uid)
        assert (await world.the_mirror()).status.allocation is None
        assert (await world.the_claim()).status.allocation is None
        assert not held_by_driver(world, holding)
        assert len(world.ledger) == 0

    played(story)


def test_who_waits_learns_that_what_an_earlier_leader_left_halfway_waits_for_a_node() -> None:
    """All of it was written before: no change of an object would wake the pod."""

    async def story(world: World) -> None:
        await world.node("node-1")
        acting, holding = Acting(world), await unused(world, Phase.UNRESERVING)
        holding.owed = {PreparedOn("uid-mirror", "node-1")}
        world.woken.clear()
        await acting.deallocator.sync(holding.uid)
        assert holding.phase is Phase.RELEASING
        assert ("claim", holding.namespace, holding.claim) in world.woken

    played(story)


def test_who_waits_is_woken_though_a_late_record_comes_while_the_claim_is_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier request to make a ClaimRelease arrives when the node has answered already. It is waived later."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await unused(world, Phase.RELEASING)
        await world.seen()
        clear = Records.clear_claim

        async def slow(records: Records, cleared: Holding) -> None:
            await clear(records, cleared)
            cleared.owed.add(PreparedOn(cleared.uid, "node-1"))

        monkeypatch.setattr(Records, "clear_claim", slow)
        await acting.deallocator.sync(holding.uid)
        assert len(world.ledger) == 0
        assert CLAIM in world.woken

    played(story)


def test_a_built_in_claim_that_is_being_deleted_is_cleared_like_any() -> None:
    """It is reserved still, and the kubelet of whoever it is reserved for would go by it."""

    async def story(world: World) -> None:
        pod, acting = await world.pod(claims=["c"]), Acting(world)
        holding = await named(world, pod)
        await world.delete(BUILTIN_CLAIMS, "c")
        await world.seen()
        assert (await world.the_mirror()).metadata.deletion_timestamp
        await acting.deallocator.release(reference(pod), [holding], UNPLACED)
        mirror = await world.the_mirror()
        assert mirror.status.allocation is None
        assert not mirror.status.reserved_for

    played(story)


@pytest.mark.parametrize("way", ["give up", "sync"])
def test_what_waits_for_a_holding_that_ends_leaves_what_is_allocated_anew(way: str) -> None:
    """Both are of one claim, and have its UID. Nobody uses it now: it is kept."""

    async def story(world: World) -> None:
        acting = Acting(world)
        former = await unused(world, Phase.RELEASING if way == "sync" else Phase.HELD)
        await world.seen()
        async with former.lock:
            waiting = asyncio.create_task(
                acting.deallocator.sync(former.uid) if way == "sync" else acting.deallocator.release_unused(former)
            )
            await asyncio.sleep(0)
            world.ledger.drop(former)
            holding = a_holding("c", uid=former.uid, pods={})
            world.ledger.add(holding)
        with nullcontext() if way == "sync" else pytest.raises(Busy):
            await waiting
        assert world.ledger.get(holding.uid) is holding
        assert (await world.the_mirror()).status.allocation is not None
        assert (await world.the_claim()).status.allocation is not None

    played(story)
