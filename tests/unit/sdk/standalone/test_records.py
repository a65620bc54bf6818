"""A standalone driver's writes of a claim: each is of the claim as it is, and safe to repeat."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.conditions import condition
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, LaggingClient, World, informed

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS
from parley.kube.client import Conflict
from parley.sdk import Allocation
from parley.sdk.recorded import allocation_record
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.simulate.virtual_time import run

FINALIZER = driver_finalizer(DRIVER)
FOREIGN = "example.com/keep"
ON_A = allocation_record(DRIVER, Allocation(data={"size": 1}), "a", shareable=False)
ON_B = allocation_record(DRIVER, Allocation(data={"size": 1}), "b", shareable=False)


def recording(scenario: Callable[[World, StandaloneRecords, ClaimRef], Awaitable[None]]) -> None:
    """Plays it with the claim `disk`, which has a foreign finalizer; all watches are three seconds late."""

    async def main() -> None:
        world = World()
        await world.add_class()
        await world.add_claim("disk")
        await patch(world, metadata={"finalizers": [FOREIGN]})
        client = LaggingClient(world.server.client())
        ref = ClaimRef((NAMESPACE, "disk"), (await world.claim("disk")).metadata.uid)
        async with informed(client) as informers:
            await scenario(world, StandaloneRecords(client, informers, world.clock), ref)

    run(main())


async def patch(world: World, **body: Any) -> None:
    await world.client.patch(CLAIMS, "disk", body, NAMESPACE)


def test_the_finalizer_comes_with_the_node_and_both_go_again() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await records.add_finalizer(ref, "a", resumes=True)
        claim = await world.claim("disk")
        assert claim.metadata.finalizers == (FOREIGN, FINALIZER)
        assert records.has_finalizer(claim)
        assert records.begun_on(claim) == "a"
        before = world.server.resource_version
        await records.add_finalizer(ref, "a", resumes=True)
        assert world.server.resource_version == before, "it is there already"
        await records.remove_finalizer(ref)
        claim = await world.claim("disk")
        assert (claim.metadata.finalizers, records.begun_on(claim)) == ((FOREIGN,), None)

    recording(scenario)


def test_a_claim_that_is_being_deleted_gets_no_finalizer() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await world.delete("disk")
        with pytest.raises(Gone):
            await records.add_finalizer(ref, "a", resumes=True)
        assert (await world.claim("disk")).metadata.finalizers == (FOREIGN,)

    recording(scenario)


def test_a_claim_that_changed_meanwhile_is_read_and_written_again() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await patch(world, metadata={"labels": {"step": "1"}})
        await records.add_finalizer(ref, "a", resumes=True)
        claim = await world.claim("disk")
        assert (claim.metadata.labels, records.has_finalizer(claim)) == ({"step": "1"}, True)

    recording(scenario)


def test_an_allocation_that_is_recorded_already_stays() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        first = await records.record_allocation(ref, ON_A, "a", live=False)
        assert (first.status.driver_name, condition(first, "Allocated").status) == (DRIVER, "True")
        again = await records.record_allocation(ref, ON_B, "b", live=True)
        assert again.status.allocation == first.status.allocation

    recording(scenario)


def test_what_another_driver_allocated_is_neither_taken_for_the_drivers_own_nor_cleared() -> None:
    """The class is that driver's by now."""

    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await records.add_finalizer(ref, "a", resumes=True)
        others = allocation_record("other.example.com", Allocation(data={}), "b", shareable=False)
        status = {"driverName": "other.example.com", "allocation": others}
        await world.client.patch(CLAIMS, "disk", {"status": status}, NAMESPACE, subresource="status")
        assert records.is_of_another_driver(await world.claim("disk"))
        for write in (
            records.record_allocation(ref, ON_A, "a", live=False),
            records.settle(ref),
            records.add_finalizer(ref, "b", resumes=True),
        ):
            with pytest.raises(Gone):
                await write
        await records.clear_allocation(ref)
        await records.remove_finalizer(ref)
        claim = await world.claim("disk")
        assert claim.status.allocation is not None
        assert claim.status.allocation.handles[0].driver_name == "other.example.com"
        assert claim.metadata.finalizers == (FOREIGN,)

    recording(scenario)


def test_once_settled_no_earlier_write_is_accepted() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        known = (await world.claim("disk")).metadata.resource_version
        await records.settle(ref)
        late = {"metadata": {"resourceVersion": known}, "status": {"driverName": DRIVER, "allocation": ON_A}}
        with pytest.raises(Conflict):
            await world.client.patch(CLAIMS, "disk", late, NAMESPACE, subresource="status")

    recording(scenario)


def test_cleared_is_everything_in_one_write() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await records.record_allocation(ref, ON_A, "a", live=False)
        await world.take_back("disk")
        before = world.server.resource_version
        await records.clear_allocation(ref)
        status = (await world.claim("disk")).status
        assert (status.driver_name, status.allocation, status.deallocation_requested) == (None, None, False)
        assert condition(await world.claim("disk"), "Allocated").reason == "WaitForFirstConsumer"
        assert world.server.resource_version == before + 1
        await records.clear_allocation(ref)
        assert world.server.resource_version == before + 1, "there is nothing left to clear"

    recording(scenario)


def test_progress_ends_where_there_was_any_and_never_beside_an_allocation() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        before = world.server.resource_version
        await records.end_progress(ref, "not wanted any more")
        assert world.server.resource_version == before
        await records.set_progress(ref, "10 %")
        await records.end_progress(ref, "not wanted any more")
        ended = condition(await world.claim("disk"), "Allocating")
        assert (ended.status, ended.reason, ended.message) == ("False", "Ended", "not wanted any more")
        await records.record_allocation(ref, ON_A, "a", live=False)
        await records.set_progress(ref, "20 %")
        assert condition(await world.claim("disk"), "Allocating").reason == "Done"

    recording(scenario)


def test_another_claim_of_the_name_is_left_alone() -> None:
    async def scenario(world: World, records: StandaloneRecords, ref: ClaimRef) -> None:
        await world.delete("disk")
        await patch(world, metadata={"finalizers": None})
        await world.add_claim("disk")
        for write in (
            records.add_finalizer(ref, "a", resumes=True),
            records.record_allocation(ref, ON_A, "a", live=False),
            records.set_progress(ref, "10 %"),
        ):
            with pytest.raises(Gone):
                await write
        await records.remove_finalizer(ref)
        claim = await world.claim("disk")
        assert (claim.metadata.finalizers, claim.status.allocation, claim.status.conditions) == ((), None, ())

    recording(scenario)
