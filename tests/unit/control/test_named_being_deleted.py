"""Who still uses a named claim that is being deleted, and for whom that is in the way."""

import pytest
from tests.unit.control.builders import NAMESPACE, World, a_holding, played
from tests.unit.control.named import found, hold, ready

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.names import FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.control.objects.pod import reference


async def in_use(world: World) -> Pod:
    """The pod that uses claim c, which has Parley's finalizer."""
    await ready(world)
    pod = await world.pod(claims=["c"])
    mine = reference(pod)
    world.ledger.add(a_holding("c", uid=(await world.the_claim()).metadata.uid, pods={mine.uid: mine}))
    await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE)
    return pod


@pytest.mark.parametrize("deleted", ["claim", "mirror"])
def test_a_pod_keeps_the_claim_that_it_uses_whatever_is_deleted(deleted: str) -> None:
    async def story(world: World) -> None:
        pod = await in_use(world)
        await world.delete(CLAIMS if deleted == "claim" else BUILTIN_CLAIMS, "c")
        claim = await found(world, pod)
        assert claim is not None
        assert claim.problem is None
        assert claim.holding is world.ledger.of_claim(NAMESPACE, "c")

    played(story)


def test_a_claim_whose_last_user_is_bound_and_whose_mirror_was_forced_away_is_being_deleted() -> None:
    async def story(world: World) -> None:
        pod = await in_use(world)
        await world.delete(CLAIMS, "c")
        await world.admin.patch(BUILTIN_CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(BUILTIN_CLAIMS, "c")
        claim = await found(world, pod)
        assert claim is not None
        assert claim.problem is not None
        assert claim.problem.code == reasons.CLAIM_BEING_DELETED

    played(story)


@pytest.mark.parametrize("node", ["node-1", "node-2", ""])
def test_a_pod_that_its_scheduler_let_in_keeps_a_shared_claim_that_is_being_deleted(node: str) -> None:
    """It runs with the claim, although its scheduler took the reservation back later."""

    async def story(world: World) -> None:
        await world.class_(shareable=True)
        await world.mirror(await world.claim(), shareable=True)
        await hold(world, "q", shareable=True)
        await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE)
        await world.delete(CLAIMS, "c")
        claim = await found(world, await world.pod(claims=["c"], nodeName=node) if node else None)
        assert claim is not None
        if node == "node-1":
            assert claim.problem is None
        else:
            assert claim.problem is not None
            assert claim.problem.code == reasons.CLAIM_BEING_DELETED

    played(story)
