"""Ledger and drivers know after a restart what the API records, no more and no less."""

from typing import Any

import pytest
from tests.unit.control.builders import NAMESPACE, TOKENS, Acting, World, a_holding, generated_metadata, played

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, PODS, RESOURCE_SLICES
from parley.control.claims.gathering import gather
from parley.control.decision.demand import demand_of
from parley.control.holding import Holding, Written
from parley.control.objects.pod import reference
from parley.control.restored_units import count_again, count_again_for
from parley.control.restoring import adopt, count_foreign, restore
from parley.control.state import State
from parley.drivers.device import DeviceDriver
from parley.sdk import Allocation, Answer, Reserve
from parley.sdk.parameters import RawClaim
from parley.sdk.recorded import allocation_record


async def allocated(world: World, pod: Pod) -> Holding:
    """The pod's one claim is allocated on node-1 and recorded, as the reconciler does it."""
    pending = gather(world.state, pod)
    demand = demand_of(world.state.drivers, reference(pod), pending)
    await Acting(world).allocator.allocate(pod, pending, demand, "node-1", offered=False)
    await world.records.write(pending)
    await world.seen()
    (holding,) = world.ledger.of_pod(reference(pod))
    return holding


def restarted(world: World, *drivers: Any) -> State:
    """The caches as they are, with a ledger and drivers that know nothing."""
    fresh = World(*drivers) if drivers else World()
    return State(world.cluster, fresh.ledger, fresh.state.drivers)


KEPT = (
    "uid",
    "namespace",
    "claim",
    "named",
    "driver",
    "node",
    "pods",
    "class_name",
    "units",
    "shareable",
)


def kept(holding: Holding) -> dict[str, Any]:
    """What has to be as before."""
    return {name: getattr(holding, name) for name in KEPT} | {"data": dict(holding.allocation.data)}


@pytest.mark.parametrize("kind", ["named", "generated", "shareable"])
def test_what_was_recorded_is_taken_over_as_it_was(kind: str) -> None:
    async def story(world: World) -> None:
        await world.class_(shareable=kind == "shareable", parameters={"pool": 4, "scope": "Node"})
        if kind == "generated":
            pod = await world.pod(templates=["licence"])
            await world.generated(pod, count=3)
        else:
            pod = await world.pod(claims=["c"])
            await world.mirror(await world.claim(count=3), shareable=kind == "shareable")
        before = await allocated(world, pod)
        state = restarted(world)
        assert restore(state) == set()
        (after,) = state.ledger
        assert kept(after) == kept(before)
        assert (after.written, after.entry) == (Written.YES, "licence" if kind == "generated" else "")
        assert not viable(state, count=2)
        assert viable(state, count=1)

    played(story)


def test_a_claim_with_an_exclusive_mirror_is_not_shareable_whatever_its_record_says() -> None:
    """Its class became shareable while a standalone driver allocated. Schedulers and policies go by the mirror."""

    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(claims=["c"])
        await world.mirror(await world.claim(), shareable=False)
        await allocated(world, pod)
        await world.admin.patch(CLASSES, "licence", {"shareable": True})
        before = (await world.admin.get(CLAIMS.untyped(), "c", NAMESPACE))["status"]
        await world.patch_status(CLAIMS, "c", {"allocation": None, "reservedFor": None})
        shared = {**before["allocation"], "shareable": True}
        await world.patch_status(CLAIMS, "c", {**before, "allocation": shared})
        state = restarted(world)
        restore(state)
        (after,) = state.ledger
        assert not after.shareable

    played(story)


def viable(state: State, count: int) -> bool:
    """Whether so many tokens are free on node-1."""
    pool = {"pool": 4, "scope": "Node"}
    raw = RawClaim("asks", "uid-asks", NAMESPACE, "asks", "licence", {"count": count}, pool)
    driver = state.drivers[TOKENS]
    answer: Answer = driver.viable(driver.request(reference(Pod()), [raw]), ["node-1"])["asks"]
    return bool(answer.viable)


def test_taking_over_twice_changes_nothing() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        await world.generated(pod, count=3)
        await allocated(world, pod)
        state = restarted(world)
        restore(state)
        (first,) = state.ledger
        restore(state)
        assert list(state.ledger) == [first]

    played(story)


def test_a_named_claim_whose_own_record_is_missing_is_taken_over_from_its_mirror() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(claims=["c"])
        claim = await world.claim()
        await world.mirror(claim)
        await allocated(world, pod)
        await world.patch_status(CLAIMS, "c", {"allocation": None, "driverName": None, "reservedFor": None})
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert (holding.uid, holding.named) == (claim.metadata.uid, True)

    played(story)


def test_a_named_claim_that_was_forced_away_is_taken_over_from_its_mirror_as_it_was() -> None:
    """ClaimReleases name it by its own UID. Another one may have its name by now."""

    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(claims=["c"])
        claim = await world.claim()
        await world.mirror(claim)
        await allocated(world, pod)
        await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(CLAIMS, "c")
        await world.claim()
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert (holding.uid, holding.named, list(holding.pods)) == (claim.metadata.uid, True, [pod.metadata.uid])

    played(story)


def test_users_that_the_pod_cache_does_not_have_are_told() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(claims=["c"])
        await world.mirror(await world.claim())
        await allocated(world, pod)
        await world.admin.delete(PODS, "p", NAMESPACE, grace_period_seconds=0)
        await world.seen()
        state = restarted(world)
        assert restore(state) == {pod.metadata.uid}
        (holding,) = state.ledger
        assert list(holding.pods) == [pod.metadata.uid]

    played(story)


def test_a_request_to_remove_data_does_not_end_a_claim_that_has_users() -> None:
    """The leader before was killed after it had created the ClaimRelease. Its data is removed when the users'
    end has been handled, after a request that is created for that."""

    async def story(world: World) -> None:
        await world.class_(parameters={"pool": 4, "scope": "Node"})
        await world.node("node-1")
        pod = await world.pod(claims=["c"])
        await world.mirror(await world.claim())
        before = await allocated(world, pod)
        acting = Acting(world)
        before.owe_removal()
        await acting.releases.create_missing(before)
        await world.seen()
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert not holding.owed
        assert holding.joinable
        assert not holding.removing

    played(story)


def test_an_offer_that_nobody_answered_holds_nothing() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        await world.generated(pod)
        await world.records.offer(gather(world.state, pod), {"licence": TOKENS}, ["node-1"])
        await world.seen()
        state = restarted(world)
        restore(state)
        assert len(state.ledger) == 0

    played(story)


def test_what_a_driver_that_does_not_run_here_allocated_is_its_own() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        mirror = await world.generated(pod)
        await allocated(world, pod)
        state = State(world.cluster, restarted(world).ledger, {})
        restore(state)
        assert len(state.ledger) == 0
        now = world.cluster.mirror((NAMESPACE, mirror.metadata.name))
        assert now is not None
        adopt(state, now, standalone=True)
        (holding,) = state.ledger
        assert holding.standalone

    played(story)


def test_units_that_are_not_recorded_are_counted_when_the_class_comes_after_the_claims() -> None:
    """A record of an earlier version."""

    async def story(world: World) -> None:
        spec = {"resourceClassName": "licence", "parameters": {"count": 3}}
        handle = {"driverName": TOKENS, "data": {"pool": "licence", "node": "*", "count": 3}}
        status = {"driverName": TOKENS, "allocation": {"handles": [handle]}}
        await world.put(CLAIMS, {"metadata": {"name": "c"}, "spec": spec, "status": status})
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert holding.units == 1
        await world.class_(limits=[{"units": 3}])
        count_again(state, "licence")
        class_ = world.cluster.class_("licence")
        assert class_ is not None
        assert (holding.units, holding.records_units) == (3, False)
        assert state.ledger.limits.excess(class_, NAMESPACE, {"uid-new": 1})

    played(story)


def test_units_are_counted_once_a_claim_was_created_again_for_the_pod() -> None:
    """The claim that the pod has was removed by force while its class was gone."""

    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        user = reference(pod)
        pods, entry = {user.uid: user}, "licence"
        holding = a_holding("gone", pods=pods, named=False, entry=entry, class_name="licence", counted=False)
        world.ledger.add(holding)
        count_again(world.state, "licence")
        assert (holding.units, holding.counted) == (1, False)
        await world.generated(pod, count=3)
        count_again_for(world.state, user)
        assert (holding.units, holding.counted) == (3, True)

    played(story)


@pytest.mark.parametrize(("driver", "units"), [(TOKENS, 7), ("outside.example.com", 1)])
def test_units_in_a_record_count_if_the_driver_is_one_of_ours(driver: str, units: int) -> None:
    """They are recorded where parameters were in an object, which may be gone. A standalone driver's claim is one
    unit, whatever it writes."""

    async def story(world: World) -> None:
        await world.class_(driver=driver)
        spec = {"resourceClassName": "licence", "parametersRef": {"kind": "ConfigMap", "name": "gone"}}
        data = {"pool": "licence", "node": "*", "count": 7}
        allocation = {"handles": [{"driverName": driver, "data": data}], "units": 7}
        status = {"driverName": driver, "allocation": allocation}
        await world.put(CLAIMS, {"metadata": {"name": "c"}, "spec": spec, "status": status})

        state = restarted(world)
        restore(state)

        (holding,) = state.ledger
        assert (holding.units, holding.records_units) == (units, driver == TOKENS)

    played(story)


@pytest.mark.parametrize("admin", [False, True], ids=["ordinary", "administrator"])
def test_a_device_that_ordinary_dra_took_is_in_use_unless_an_administrator_looks_at_it(admin: bool) -> None:
    async def story(world: World) -> None:
        device = {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}
        spec = {"driver": DeviceDriver.name, "nodeName": "node-1", "pool": {"name": "node-1", "generation": 1}}
        await world.put(
            RESOURCE_SLICES, {"metadata": {"name": "node-1-devices"}, "spec": {**spec, "devices": [device]}}
        )
        request = {"name": "it", "exactly": {"deviceClassName": "gpu.example.com"}}
        result = {"request": "it", "driver": DeviceDriver.name, "pool": "node-1", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [{**result, "adminAccess": admin}]}}}
        foreign = await world.put(
            BUILTIN_CLAIMS,
            {"metadata": {"name": "theirs"}, "spec": {"devices": {"requests": [request]}}, "status": status},
        )
        restore(world.state)
        driver = world.state.drivers[DeviceDriver.name]
        raw = RawClaim("asks", "uid-asks", NAMESPACE, "asks", "gpu", {}, None)
        answer = driver.viable(driver.request(reference(Pod()), [raw]), ["node-1"])["asks"]
        assert bool(answer.viable) is admin
        assert count_foreign(world.state.drivers, foreign) is not admin
        assert len(world.ledger) == 0

    played(story, DeviceDriver())


def test_a_pod_with_very_many_claims_uses_what_was_allocated_for_each_of_them() -> None:
    """By an earlier version, which allocated for such pods if no driver had too many of the claims."""

    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        await world.generated(pod)
        await allocated(world, pod)
        entries = [{"name": f"e{n}", "resourceClaimTemplateName": "licence"} for n in range(300)]
        last = {"name": "licence", "resourceClaimTemplateName": "licence"}
        many = await world.pod("many", resourceClaims=[*entries, last])
        meta = {"ownerReferences": generated_metadata(many, "licence")["ownerReferences"]}
        await world.admin.patch(BUILTIN_CLAIMS, "p-licence", {"metadata": meta}, NAMESPACE)
        await world.seen()
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert {*holding.pods} == {many.metadata.uid, pod.metadata.uid}

    played(story)


def test_an_owner_that_somebody_put_there_by_hand_uses_nothing() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(templates=["licence"])
        mirror = await world.generated(pod)
        await allocated(world, pod)
        other = await world.pod("other")
        meta = {"ownerReferences": generated_metadata(other, "licence")["ownerReferences"]}
        await world.admin.patch(BUILTIN_CLAIMS, mirror.metadata.name, {"metadata": meta}, NAMESPACE)
        await world.seen()
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert list(holding.pods) == [pod.metadata.uid]

    played(story)


def test_room_that_a_standalone_driver_records_is_not_reserved() -> None:
    async def story(world: World) -> None:
        await world.class_(driver="disks.example.com")
        await world.claim()
        reserved = Allocation(reserve=Reserve({"cpu": "1"}, hold="Nominated"))
        record = allocation_record("disks.example.com", reserved, "a", shareable=False)
        assert record["reserve"]
        await world.patch_status(CLAIMS, "c", {"driverName": "disks.example.com", "allocation": record})
        state = restarted(world)
        restore(state)
        (holding,) = state.ledger
        assert holding.standalone
        assert not holding.reserves

    played(story)
