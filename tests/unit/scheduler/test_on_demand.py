"""Claims made on demand: the first pod that names one has it made, by a template whose `sharedBy` fits it."""

import asyncio
from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.killed import Play, Watch, killed_at_every_write

from parley.api import reasons
from parley.api.resources import CLAIMS, CONFIG_MAPS, PODS, TEMPLATES
from parley.kube.client import Forbidden

RUN = "example.com/run"
UID = "example.com/run-uid"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "nameLabel": RUN, "uidLabel": UID}


async def add_shared(world: World, name: str = "src", class_name: str = "common", **shared: Any) -> None:
    body = {"spec": {"resourceClassName": class_name}, "sharedBy": {"podLabel": RUN, **shared}}
    await world.create(TEMPLATES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": body})


async def add_task(world: World, name: str, claim: str, labels: dict[str, str], **spec: Any) -> None:
    """A pod that names the claim and has the labels."""
    if world.scheduling_path == "extender":
        spec["schedulerName"] = "parley"
    entries = [{"name": "work", "resourceClaimName": claim}]
    body = {"resourceClaims": entries, "containers": [{"name": "main", "image": "none"}], **spec}
    await world.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": body})


async def run_of(world: World, name: str) -> dict[str, str]:
    """A run, and the labels of its pods."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    made = await world.client.create(CONFIG_MAPS, body, NAMESPACE)
    return {RUN: name, UID: made.metadata.uid}


async def ready(world: World) -> None:
    await world.add_node("a", devices=2)
    await world.add_node("b", devices=2)
    await world.add_class("common", shareable=True, whenUnused={"keepSeconds": 60})


async def names(world: World) -> list[str]:
    return sorted(claim.metadata.name for claim in (await world.client.list(CLAIMS, NAMESPACE)).items)


@pytest.mark.scheduling_paths("native", "extender")
def test_all_pods_of_a_run_share_the_claim_that_the_first_of_them_had_made(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_shared(world, owner=OWNER)
        labels = await run_of(world, "7")
        for pod in ("one", "two"):
            await add_task(world, pod, "src-7", labels)
        await add_task(world, "other", "src-8", await run_of(world, "8"))
        await world.settle()
        assert await world.node_of("one") == await world.node_of("two") != ""
        assert await world.node_of("other")
        assert await names(world) == ["src-7", "src-8"]
        claim = await world.claim("src-7")
        (owner,) = claim.metadata.owner_references
        assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "ConfigMap", "7", labels[UID])
        assert {user.name for user in claim.status.reserved_for} == {"one", "two"}

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_the_template_may_come_after_the_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_task(world, "early", "src-7", {RUN: "7"})
        await world.settle()
        assert await names(world) == []
        await add_shared(world)
        await world.settle()
        assert await world.node_of("early")

    play(scenario)


def test_a_pod_is_told_which_label_it_lacks_and_goes_on_when_it_has_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_shared(world)
        await add_task(world, "bare", "src-7", {"app": "test"})
        await world.settle()
        status = (await world.scheduling("bare")).status
        assert (status.waiting_for, status.message) == (
            reasons.CLAIM_NOT_MADE,
            "claim default/src-7 does not exist, and template default/src creates claims by the label "
            "'example.com/run' (spec.sharedBy.podLabel), which pod default/bare does not have: set it in "
            "metadata.labels, or create the claim",
        )
        assert await names(world) == []
        await world.client.patch(PODS, "bare", {"metadata": {"labels": {RUN: "7"}}}, NAMESPACE)
        await world.settle()
        assert await world.node_of("bare")

    play(scenario)


def test_a_claim_that_is_there_is_used_whoever_made_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_shared(world, owner=OWNER)
        await world.add_claim("src-7", "common")
        await add_task(world, "task", "src-7", {})
        await world.settle()
        assert await world.node_of("task")
        assert (await world.claim("src-7")).metadata.owner_references == ()

    play(scenario)


def test_a_gated_pod_has_nothing_made_yet(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_shared(world)
        await add_task(world, "gated", "src-7", {RUN: "7"}, schedulingGates=[{"name": "later"}])
        await world.settle()
        assert await names(world) == []
        await world.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, NAMESPACE)
        await world.settle()
        assert await world.node_of("gated")

    play(scenario)


def test_a_claim_that_was_deleted_is_made_anew_for_the_next_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await world.add_class("alone")
        await add_shared(world, class_name="alone")
        await add_task(world, "first", "src-7", {RUN: "7"})
        await world.settle()
        before = (await world.claim("src-7")).metadata.uid
        await world.client.delete(CLAIMS, "src-7", NAMESPACE)
        await add_task(world, "second", "src-7", {RUN: "7"})
        await asyncio.sleep(60)
        assert not await world.node_of("second")
        await world.finish_pod("first")
        await world.settle()
        assert await world.node_of("second")
        assert (await world.claim("src-7")).metadata.uid != before

    play(scenario)


def test_a_claim_whose_owner_does_not_exist_is_made_at_growing_intervals(play: Play) -> None:
    async def scenario(world: World) -> None:
        """A garbage collector deletes it at once, each time."""
        creations = 0

        def count(call: NumberedCall) -> None:
            nonlocal creations
            creations += call.verb == "create" and call.resource == CLAIMS

        world.start_parley(FaultClient(world.server.client(), after=count))
        await world.add_class("common", shareable=True)  # no node: the pod stays unbound
        await add_shared(world, owner=OWNER)
        await add_task(world, "forged", "src-7", {RUN: "7", UID: "of-nobody"})
        for _ in range(600):
            await asyncio.sleep(1)
            for claim in (await world.client.list(CLAIMS, NAMESPACE)).items:
                if not claim.metadata.deletion_timestamp:
                    await world.client.delete(CLAIMS, claim.metadata.name, NAMESPACE)
        assert 8 <= creations <= 11

    play(scenario)


def test_a_refused_claim_is_reported_and_tried_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        refusing = True

        def quota(call: NumberedCall) -> None:
            if refusing and call.verb == "create" and call.resource == CLAIMS:
                raise Forbidden(403, "Forbidden", "exceeded quota: claims")

        world.start_parley(FaultClient(world.server.client(), before=quota))
        await ready(world)
        await add_shared(world)
        await add_task(world, "task", "src-7", {RUN: "7"})
        await asyncio.sleep(120)
        status = (await world.scheduling("task")).status
        assert status.waiting_for == reasons.WRITE_REFUSED
        assert status.message == "the API server refused a write: exceeded quota: claims"
        refusing = False
        await asyncio.sleep(300)
        assert await world.node_of("task")

    play(scenario)


async def story(world: World) -> None:
    """Two runs at once, the second with a claim for one pod at a time; the first run is deleted."""
    await ready(world)
    await world.add_class("alone")
    await add_shared(world, owner=OWNER)
    await add_shared(world, "own", "alone")
    labels = await run_of(world, "7")
    for pod in ("one", "two"):
        await add_task(world, pod, "src-7", labels)
        await add_task(world, f"own-{pod}", "own-8", {RUN: "8"})
    await world.settle()
    assert await names(world) == ["own-8", "src-7"]
    assert await world.node_of("one") == await world.node_of("two") != ""
    await world.client.delete(CONFIG_MAPS, "7", NAMESPACE)
    for pod in ("one", "two", "own-one"):
        await world.finish_pod(pod)
    await world.settle()


async def end(world: World) -> None:
    assert await names(world) == ["own-8"]
    assert await world.node_of("own-two")
    assert len(world.ledger) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_makes_one_claim_and_loses_none(play: Play, watcher: Watch, after: bool) -> None:
    killed_at_every_write(play, watcher, story, end, after=after, at_least=15)


@pytest.mark.scheduling_paths("native", "extender")
def test_a_run_that_is_begun_again_does_not_get_the_claim_of_the_former_one(play: Play) -> None:
    """The garbage collector takes its time: until it has deleted the claim its pods' directory is there still."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await add_shared(world, owner=OWNER)
        former = await run_of(world, "7")
        await add_task(world, "former", "src-7", former)
        await world.settle()
        await world.finish_pod("former")
        claim = await world.claim("src-7")
        world.server.garbage_lag = lambda: 3600.0
        await world.client.delete(CONFIG_MAPS, "7", NAMESPACE)
        present = await run_of(world, "7")
        await add_task(world, "one", "src-7", present)
        await world.settle()
        assert await world.node_of("one") == ""
        told = [note for reason, note in await world.events_on("one") if reason == "ClaimBeingDeleted"]
        assert "belongs to an earlier ConfigMap 7" in told[0]
        await world.client.delete(CLAIMS, "src-7", NAMESPACE)
        await world.settle()
        assert await world.node_of("one")
        now = await world.claim("src-7")
        assert now.metadata.uid != claim.metadata.uid
        assert [owner.uid for owner in now.metadata.owner_references] == [present[UID]]
        await add_task(world, "unlabelled", "src-7", {})
        await world.settle()
        assert await world.node_of("unlabelled")

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_a_pod_with_another_owner_does_not_keep_the_pods_of_a_run_out_of_their_exclusive_claim(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await ready(world)
        await world.add_class("exclusive")
        await add_shared(world, class_name="exclusive", owner=OWNER)
        labels = await run_of(world, "7")
        await add_task(world, "first", "src-7", labels)
        await world.settle()
        await add_task(world, "mislabelled", "src-7", {**labels, UID: "nobody"})
        await world.settle()
        await add_task(world, "second", "src-7", labels)
        await world.settle()
        await world.finish_pod("first")
        await world.settle(60)
        assert await world.node_of("second")
        assert not await world.node_of("mislabelled")

    play(scenario)
