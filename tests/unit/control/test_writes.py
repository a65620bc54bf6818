"""A write of unknown outcome is settled by a newer one, after which it can't arrive any more."""

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.allocated import fresh, generated, named
from tests.unit.control.builders import NAMESPACE, World, played

from parley.api.conditions import ConditionUpdate
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Written
from parley.kube.client import Conflict, NotFound, OutcomeUnknown


def unheard(call: NumberedCall) -> None:
    """The answer of a write of a mirror is lost."""
    if call.writes and call.resource == BUILTIN_CLAIMS:
        raise OutcomeUnknown("no answer")


async def written_unheard(world: World, *, arrived: bool) -> tuple[PodClaim, Holding]:
    """A generated claim of a pod, after a write of its mirror whose answer was lost, or which never arrived."""
    claim, holding = await generated(world, await world.pod())
    if arrived:
        world.after = unheard
    else:
        world.before = unheard
    with pytest.raises(OutcomeUnknown):
        await world.records.write([claim])
    world.before = world.after = lambda call: None
    return claim, holding


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost"])
def test_before_anything_is_freed_a_write_of_unknown_outcome_is_settled(arrived: bool) -> None:
    async def story(world: World) -> None:
        claim, holding = await written_unheard(world, arrived=arrived)
        assert not holding.written.is_settled
        assert claim.mirror is not None
        late = {
            "metadata": {"resourceVersion": claim.mirror.metadata.resource_version},
            "status": {"allocation": {}},
        }
        await world.records.clear_mirror(holding)
        assert holding.written.is_settled
        assert (await world.the_mirror(claim.name)).status.allocation is None
        with pytest.raises(Conflict):  # the lost write, if it came now
            await world.admin.patch(BUILTIN_CLAIMS, claim.name, late, NAMESPACE, subresource="status")

    played(story)


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost"])
def test_when_a_write_is_settled_it_is_known_whether_it_arrived(arrived: bool) -> None:
    """Else nobody would ask the node for a receipt when a pod that was let in by it is deleted by force."""

    async def story(world: World) -> None:
        claim, holding = await written_unheard(world, arrived=arrived)
        assert claim.mirror is not None
        await world.records._mirrors.settle(holding, claim.mirror)
        assert holding.written is (Written.YES if arrived else Written.NO)

    played(story)


def test_a_record_of_unknown_outcome_is_uncertain_until_the_next_write() -> None:
    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod())

        def lose(call: NumberedCall) -> None:
            if call.writes and call.resource == CLAIMS:
                raise OutcomeUnknown("no answer")

        world.after = lose
        with pytest.raises(OutcomeUnknown):
            await world.records.write([claim])
        assert (holding.record_written, holding.written) == (Written.MAYBE, Written.NO)
        world.after = lambda call: None
        await world.records.write([await fresh(world, claim)])
        assert (holding.record_written, holding.written) == (Written.NO, Written.YES)

    played(story)


def test_a_claim_that_is_used_again_is_recorded_so_though_it_was_about_to_be_released() -> None:
    """The record shows the same pod still when that reserves the claim again: a lost write that removes it may
    arrive after that."""

    async def story(world: World) -> None:
        claim, holding = await named(world, await world.pod())
        await world.records.write([claim])
        await world.seen()
        before = await world.the_claim()

        def lose(call: NumberedCall) -> None:
            if call.writes and call.resource == CLAIMS:
                raise OutcomeUnknown("no answer")

        world.before = lose
        with pytest.raises(OutcomeUnknown):
            await world.records.claims.record_releasing(holding)
        world.before = lambda call: None
        await world.records.write([await fresh(world, claim)])
        late = {
            "metadata": {"resourceVersion": before.metadata.resource_version},
            "status": {"reservedFor": None},
        }
        with pytest.raises(Conflict):
            await world.admin.patch(CLAIMS, "c", late, NAMESPACE, subresource="status")

    played(story)


def test_nothing_is_remembered_of_writes_of_what_is_gone_as_the_cache_has_shown() -> None:
    async def story(world: World) -> None:
        await named(world, await world.pod())
        claim = await world.the_claim()
        await world.admin.patch(CLAIMS, claim.metadata.name, {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(CLAIMS, claim.metadata.name)
        await world.seen()
        again = ConditionUpdate("Accepted", True, "Accepted", "again")
        with pytest.raises(NotFound):
            await world.records.claims.set_conditions(claim, again)
        assert not world.cluster.own_writes.is_stale(claim.metadata)
        assert await world.records.stand_ins.delete_unused(claim)
        assert not world.cluster.own_writes.is_stale(claim.metadata)

    played(story)
