"""What is written to the record of a named claim: whole, once, and never over a newer state or another claim's."""

import pytest
from tests.support.conditions import condition
from tests.unit.control.allocated import named
from tests.unit.control.builders import TOKENS, World, a_holding, played

from parley.api.conditions import ConditionUpdate
from parley.api.resources import CLAIMS
from parley.control.allocation import Busy
from parley.kube.client import Conflict, NotFound
from parley.sdk.recorded import allocation_record


def test_a_named_claims_record_is_cleared_whole() -> None:
    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod())
        await world.records.write([claim])
        await world.seen()
        await world.records.claims.clear(holding)
        status = (await world.the_claim()).status
        assert (status.allocation, status.driver_name, status.reserved_for) == (None, None, ())
        assert condition(await world.the_claim(), "Allocated").reason == "WaitForFirstConsumer"

    played(story)


def test_a_condition_is_written_once_and_never_over_a_newer_state() -> None:
    async def story(world: World) -> None:
        claim, said = await world.claim(), ConditionUpdate("Accepted", True, "Accepted", "all is known")
        assert await world.records.claims.set_conditions(claim, said)
        now = await world.the_claim()
        assert [(c.type, c.status, c.reason) for c in now.status.conditions] == [
            ("Accepted", "True", "Accepted"),
            ("Allocated", "False", "WaitForFirstConsumer"),
            ("Ready", "False", "WaitForFirstConsumer"),
        ]
        assert not await world.records.claims.set_conditions(now, said)
        older = ConditionUpdate("Accepted", False, "ClassNotFound", "older")
        with pytest.raises(Conflict):
            await world.records.claims.set_conditions(claim, older)

    played(story)


def test_the_record_of_a_newer_claim_of_the_same_name_is_left_alone() -> None:
    async def story(world: World) -> None:
        claim, _ = await named(world, await world.pod())
        await world.records.write([claim])
        await world.seen()
        before = world.server.resource_version
        with pytest.raises(NotFound):
            await world.records.claims.request_deallocation(a_holding("c", standalone=True))
        await world.records.claims.clear(a_holding("c"))
        assert world.server.resource_version == before

    played(story)


@pytest.mark.parametrize("standalone", [True, False])
def test_what_the_former_driver_of_the_class_allocated_ends_before_anything_is_recorded(standalone: bool) -> None:
    """A standalone driver is asked to deallocate; what one in the controller recorded late is cleared."""

    async def story(world: World) -> None:
        _, holding = await named(world, await world.pod())
        former = "former.example.com" if standalone else TOKENS
        holding.driver = TOKENS if standalone else "new.example.com"
        allocation = allocation_record(former, holding.allocation, holding.node, shareable=False)
        await world.patch_status(CLAIMS, "c", {"driverName": former, "allocation": allocation})
        with pytest.raises(Busy):
            await world.records.claims.write(holding)
        status = (await world.the_claim()).status
        assert (status.allocation is not None, status.deallocation_requested) == (standalone, standalone)

    played(story)
