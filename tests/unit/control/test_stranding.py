"""Conditions of a named claim whose only node takes no pods, and what its driver lets become of it."""

from typing import Any

import pytest
from tests.unit.control.builders import Acting, World, a_holding, played, user

from parley.api.models import ResourceClaim
from parley.control.claims.stranding import Stranding
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.negotiation.stranded import Cause
from parley.sdk import ClaimRequest, Stranded

CORDONED: dict[str, Any] = {"unschedulable": True}
LONG_LOST: dict[str, Any] = {
    "taints": [
        {
            "key": "node.kubernetes.io/out-of-service",
            "effect": "NoExecute",
            "timeAdded": "2020-01-01T00:00:00Z",
        }
    ]
}
KEY = ("team", "c")


class SettlingDriver(TokensDriver):
    """Lets claims wait, fail or start over after a minute, as their class's test says."""

    way: Any = "Fail"

    def stranded(self, claim: ClaimRequest[Wanted, Pool], node: str, cause: Cause) -> Stranded:
        return Stranded(self.way, after_seconds=60)


class RecreatingDriver(SettlingDriver):
    way = "Recreate"


async def begun(world: World, **node: Any) -> tuple[ResourceClaim, Stranding]:
    """A claim that is allocated on that node."""
    await world.node("node-1", **node)
    await world.class_()
    claim = await world.claim("c")
    world.ledger.add(a_holding("c", uid=claim.metadata.uid, class_name="licence"))
    return claim, Stranding(world.state, Acting(world).deallocator, world.recorder, world.clock)


def types(stranding: Stranding, claim: ResourceClaim) -> list[tuple[str, str]]:
    return [(update.type, update.reason) for update in stranding.conditions(claim)]


def test_on_a_node_that_takes_pods_there_is_nothing_to_say() -> None:
    async def story(world: World) -> None:
        claim, stranding = await begun(world)
        assert (types(stranding, claim), await stranding.sync(KEY)) == ([], 0)

    played(story, SettlingDriver())


def test_without_a_word_of_the_driver_the_claim_waits_and_says_what_helps() -> None:
    async def story(world: World) -> None:
        claim, stranding = await begun(world, **CORDONED)

        (update,) = stranding.conditions(claim)

        assert (update.type, update.reason) == ("Stranded", "NodeCordoned")
        assert update.message == (
            "node node-1, where the claim is allocated, is cordoned and takes no pods. Remedy: uncordon the node,"
            " or delete the claim to start over elsewhere"
        )
        assert await stranding.sync(KEY) == 0

    played(story)


def test_a_claim_fails_when_the_time_that_the_driver_gives_it_is_over() -> None:
    async def story(world: World) -> None:
        claim, stranding = await begun(world, **CORDONED)
        assert (types(stranding, claim), await stranding.sync(KEY)) == ([("Stranded", "NodeCordoned")], 60)
        shown = {"type": "Stranded", "status": "True", "reason": "NodeCordoned", "message": ""}
        shown["lastTransitionTime"] = world.clock().isoformat().replace("+00:00", "Z")
        for _ in range(60):
            await world.seen()

        again = claim.model_validate({**claim.wire(), "status": {"conditions": [shown]}})

        assert types(stranding, again) == [("Stranded", "NodeCordoned"), ("Failed", "NodeCordoned")]

    played(story, SettlingDriver())


def test_a_deadline_beyond_all_dates_is_only_far_away() -> None:
    """Who may set taints may write any time into them."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "9999-12-31T23:59:59Z"}

    async def story(world: World) -> None:
        claim, stranding = await begun(world, taints=[taint])
        assert types(stranding, claim) == [("Stranded", "NodeUnreachable")]
        assert await stranding.sync(KEY) > 86_400

    played(story, SettlingDriver())


@pytest.mark.parametrize(("node", "left"), [(LONG_LOST, False), (CORDONED, True)], ids=["lost", "may come back"])
def test_a_claim_begins_anew_only_where_its_node_has_lost_what_it_had(node: dict[str, Any], left: bool) -> None:
    async def story(world: World) -> None:
        claim, stranding = await begun(world, **node)

        assert await stranding.sync(KEY) == 0

        assert (world.ledger.get(claim.metadata.uid) is not None) is left
        assert [reason for reason, _ in await world.events()] == ([] if left else ["ClaimRecreated"])

    played(story, RecreatingDriver())


def test_a_claim_that_pods_use_does_not_begin_anew() -> None:
    async def story(world: World) -> None:
        claim, stranding = await begun(world, **LONG_LOST)
        holding = world.ledger.get(claim.metadata.uid)
        assert holding is not None
        world.ledger.join(holding, user("p"))

        await stranding.sync(KEY)

        assert world.ledger.get(claim.metadata.uid) is holding

    played(story, RecreatingDriver())
