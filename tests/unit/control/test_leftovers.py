"""What is left on a lost node is removed only when the claim is not allocated there any more as it was."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import Acting, World, a_holding, played
from tests.unit.control.test_releases import releases

from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import NODES
from parley.control.holding import Holding, PreparedOn, Written
from parley.sdk import Allocation


async def lost(world: World, node: str = "node-1") -> Holding:
    """A kept holding whose node is out of service."""
    taint = {"key": OUT_OF_SERVICE_TAINT, "effect": "NoExecute"}
    await world.put(NODES, {"metadata": {"name": node}, "spec": {"taints": [taint]}})
    holding = a_holding("c", node=node, written=Written.YES, shown_by={"uid-mirror": "c"}, used=True)
    world.ledger.add(holding)
    return holding


async def may_answer(world: World) -> list[bool]:
    return [release.status.allocation_cleared for release in await releases(world)]


def test_the_node_may_not_answer_while_the_claim_has_what_is_left_there() -> None:
    """The attempt to end it failed after it was recorded, and the node may be back."""

    async def story(world: World) -> None:
        acting, holding = Acting(world), await lost(world)
        for _ in range(2):
            await acting.releases.record_lost_nodes(holding)
        await world.seen()
        await acting.releases.follow_lost_nodes(holding.uid)
        assert await may_answer(world) == [False]
        assert not holding.owed, "it is not waited for"
        world.ledger.drop(holding)
        await acting.releases.follow_lost_nodes(holding.uid)
        assert await may_answer(world) == [True]

    played(story)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_it_may_answer_when_the_claim_was_allocated_anew(elsewhere: bool) -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await lost(world)
        await acting.releases.record_lost_nodes(holding)
        await world.seen()
        world.ledger.drop(holding)
        data = dict(holding.allocation.data or {})
        anew = (
            replace(holding, node="node-2")
            if elsewhere
            else replace(holding, allocation=Allocation(data={**data, "anew": 1}))
        )
        world.ledger.add(anew)
        await acting.releases.follow_lost_nodes(holding.uid)
        assert await may_answer(world) == [True]

    played(story)


def test_a_claim_that_is_lost_there_twice_leaves_two_records() -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await lost(world)
        await acting.releases.record_lost_nodes(holding)
        data = dict(holding.allocation.data or {})
        await acting.releases.record_lost_nodes(replace(holding, allocation=Allocation(data={**data, "anew": 1})))
        found = await releases(world)
        assert len({release.metadata.name for release in found}) == 2
        assert all(len(release.metadata.name) <= 253 for release in found)

    played(story)


def test_an_answer_about_it_ends_nothing_that_is_owed() -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await lost(world)
        await acting.releases.record_lost_nodes(holding)
        (release,) = await releases(world)
        owed = set(holding.owed)
        acting.releases.changed(None, release)
        assert holding.owed == owed
        world.ledger.drop(holding)
        again = replace(holding, owed={PreparedOn(release.spec.claim.uid, "node-1")})
        world.ledger.add(again)
        acting.releases.changed(release, None)
        assert again.owed == {PreparedOn(release.spec.claim.uid, "node-1")}

    played(story)


@pytest.mark.parametrize(
    "fields", [{"named": False}, {"used": False}, {"node_part": False}, {"standalone": True}], ids=str
)
def test_what_left_nothing_leaves_no_record(fields: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        acting, holding = Acting(world), await lost(world)
        await acting.releases.record_lost_nodes(replace(holding, **fields))
        assert await releases(world) == []

    played(story)
