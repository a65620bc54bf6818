"""After a forced deletion nothing is handed on that the node may still have prepared: its receipt is waited for.

The simulated kubelets unprepare a few seconds after a pod's object went by force; a node that is stopped does not.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.unit.scheduler.releasing import SHUT_DOWN, handed_on, lost, one_device, records, restart

from parley.api import reasons
from parley.api.names import CONDITION_RELEASING
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, NODES, PODS, TEMPLATES, Resource
from parley.kube.client import NotFound

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_a_device_is_handed_on_when_its_node_has_unprepared_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await lost(world)
        assert await world.node_of("new") == ""
        (record,) = await records(world)
        (used,) = [key for key in world.kubelets.prepared if key[0] == "a"]
        assert (record.spec.node_name, record.spec.claim.uid) == used
        assert record.spec.claim.namespace == "default"
        assert record.spec.driver_name == "device.parley.dev"
        assert record.status.allocation_cleared
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_a_kubelet_that_runs_gives_the_receipt_by_itself(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        await world.force_delete("old")
        await world.add_pod("new", "one")
        await world.settle()
        await handed_on(world)

    play(scenario)


@pytest.mark.parametrize("ended", ["deleted", "finished"])
def test_a_normal_end_needs_no_receipt_and_no_write(play: Play, ended: str) -> None:
    async def scenario(world: World) -> None:
        seen: list[str] = []
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        world.watch_claims(lambda claim: seen.append(claim.metadata.name))
        if ended == "deleted":
            await world.delete_pod("old")
        else:
            await world.finish_pod("old")
        await world.add_pod("new", "one")
        await world.settle()
        await handed_on(world)
        assert seen == []

    play(scenario)


def test_a_pod_that_was_never_bound_leaves_nothing_behind(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await world.add_pod("waits", claims=["disk"], nodeSelector={"no": "such"})
        await world.settle()
        await world.force_delete("waits")
        await world.add_pod("new", claims=["disk"])
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_what_nothing_prepares_on_the_node_is_free_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, nodePart="None")
        await lost(world)
        assert await world.node_of("new") == "a"
        assert await records(world) == []

    play(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
@pytest.mark.parametrize("how", ["tainted", "deleted"])
def test_a_node_that_is_out_of_service_owes_nothing(
    play: Play, when: str, claims: tuple[str, ...], how: str
) -> None:
    async def scenario(world: World) -> None:
        async def end_node() -> None:
            if how == "tainted":
                await world.taint("a", *SHUT_DOWN)
            else:
                await world.client.delete(NODES, "a")

        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await world.add_pod("old", *(() if claims else ("one",)), claims=claims)
        await world.settle()
        world.kubelets.stop("a")
        if when == "before":
            await end_node()
        await world.force_delete("old")
        await world.settle()
        if when == "after":
            assert len(world.ledger) == 1
            await end_node()
        await world.settle()
        assert len(world.ledger) == 0
        assert await records(world) == []
        for claim in (await world.client.list(CLAIMS)).items:
            assert ready(claim) == "WaitForFirstConsumer"
            assert claim.status.allocation is None

    play(scenario)


def test_a_named_claim_shows_that_it_is_releasing_from_where_and_since_when(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await lost(world, claims=("disk",))
        claim, mirror = await world.claim("disk"), await world.mirror("disk")
        assert ready(claim) == "Releasing"
        assert claim.status.reserved_for == ()
        assert claim.status.allocation is not None
        assert mirror is not None
        assert mirror.status.allocation is None
        (condition,) = [c for c in claim.status.conditions if c.type == CONDITION_RELEASING]
        assert condition.message == (
            "a pod that used it on node a was deleted by force, and the node plugin there has yet to confirm that "
            "it is not prepared any more: bring the node back, or, if it is shut down, taint it "
            "node.kubernetes.io/out-of-service"
        )
        since = condition.last_transition_time
        words = f"claim default/disk is not free yet (since {since}): {condition.message}"
        assert (reasons.RELEASING, words) in await world.events_on("new")
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [c.type for c in claim.status.conditions] == [reasons.ACCEPTED, reasons.ALLOCATED, reasons.READY]

    play(scenario)


def test_an_immediate_claim_keeps_its_allocation_and_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk", mode="Immediate")
        await lost(world, claims=("disk",))
        assert await world.node_of("new") == ""
        assert ready(await world.claim("disk")) == "Releasing"
        await restart(world)
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_an_immediate_claim_nobody_waits_for_is_shown_as_free_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk", mode="Immediate")
        await lost(world, claims=("disk",))
        await world.delete_pod("new")
        await world.crash()
        world.kubelets.start("a")
        await world.settle()
        world.start_parley()
        await world.settle()
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [c.type for c in claim.status.conditions if c.type == CONDITION_RELEASING] == []

    play(scenario)


async def end_namespace(world: World) -> None:
    """Delete everything in it, pods without grace period, and remove finalizers."""
    kinds: tuple[Resource[Any], ...] = (PODS, CLAIMS, BUILTIN_CLAIMS, TEMPLATES)
    for resource in (kind.untyped() for kind in kinds):
        for meta in [item["metadata"] for item in (await world.client.list(resource, "default")).items]:
            await world.client.delete(resource, meta["name"], "default", grace_period_seconds=0)
            if meta.get("finalizers"):
                await world.client.patch(resource, meta["name"], {"metadata": {"finalizers": None}}, "default")


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_a_namespace_that_is_deleted_leaves_the_device_taken_until_the_receipt(
    play: Play, claims: tuple[str, ...], restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        if claims:
            await world.add_claim("disk")
        await lost(world, claims=claims)
        await end_namespace(world)
        await world.settle()
        if restarted:
            await restart(world)
        assert len(await records(world)) == 1
        await (world.add_claim("disk") if claims else world.add_template())
        await world.add_pod("new", *(() if claims else ("one",)), claims=claims)
        await world.settle()
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        await handed_on(world)

    play(scenario)


def test_a_record_that_somebody_deletes_is_taken_for_the_receipt(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await lost(world)
        (record,) = await records(world)
        await world.client.delete(CLAIM_RELEASES, record.metadata.name)
        await world.settle()
        assert await world.node_of("new") == "a"

    play(scenario)


def test_a_named_claim_goes_when_it_is_deleted_and_the_receipt_is_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await lost(world, claims=("disk",))
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert ready(await world.claim("disk")) == "ClaimBeingDeleted"
        world.kubelets.start("a")
        await world.settle()
        with pytest.raises(NotFound):
            await world.claim("disk")

    play(scenario)


def test_a_pod_that_is_only_being_deleted_keeps_what_it_has(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("old", "one")
        await world.settle()
        world.kubelets.stop("a")
        await world.delete_pod("old")
        await world.add_pod("new", "one")
        await world.settle()
        assert (await world.client.get(PODS, "old", "default")).metadata.deletion_timestamp
        assert await world.node_of("new") == ""
        assert await records(world) == []

    play(scenario)
