"""Pods whose named claim is allocated on a node that does not take them: they wait, and are told where and why."""

from collections.abc import Awaitable, Callable, Mapping

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.test_kept import KEEP, begin, run_pod

from parley.api import reasons
from parley.api.meta import Condition
from parley.api.models import ResourceClaim
from parley.api.resources import NODES

pytestmark = pytest.mark.scheduling_paths("native", "extender")

FULL_CPU = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "8"}}}]

Change = Callable[[World, str], Awaitable[None]]


async def cordon(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"spec": {"unschedulable": True}})


async def uncordon(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"spec": {"unschedulable": None}})


async def taint(world: World, node: str) -> None:
    await world.taint(node, "node.kubernetes.io/unreachable", "NoSchedule")


async def untaint(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"spec": {"taints": None}})


async def use_all_cpu(world: World, node: str) -> None:
    await world.add_pod("fills", nodeName=node, containers=FULL_CPU)


async def use_all_slots(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"status": {"allocatable": {"pods": "0"}}}, subresource="status")


async def free_slots(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"status": {"allocatable": {"pods": "110"}}}, subresource="status")


async def delete(world: World, node: str) -> None:
    await world.client.delete(NODES, node)


async def come_back(world: World, node: str) -> None:
    await world.add_node(node, devices=1)


async def end_the_other(world: World, _: str) -> None:
    await world.finish_pod("fills")


WAYS: Mapping[str, tuple[Change, Change, str]] = {
    "cordoned": (cordon, uncordon, "cordoned. Remedy: uncordon the node"),
    "unreachable": (taint, untaint, "unreachable. Remedy: bring the node back"),
    "without cpu": (use_all_cpu, end_the_other, "too little cpu left. Remedy: delete pods on the node"),
    "without slots": (use_all_slots, free_slots, "no pod slots left. Remedy: delete pods on the node"),
    "deleted": (delete, come_back, "deleted. Remedy: delete the claim to start over elsewhere"),
}


@pytest.mark.parametrize(("strand", "mend", "why"), WAYS.values(), ids=WAYS)
def test_a_pod_of_a_kept_claim_waits_is_told_and_goes_on(
    play: Play, strand: Change, mend: Change, why: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        node = await run_pod(world, "first")
        await strand(world, node)
        await world.settle(5)

        await world.add_pod("next", claims=["disk"], containers=FULL_CPU)
        await world.settle(5)

        assert await world.node_of("next") == ""
        scheduling = await world.scheduling("next")
        assert scheduling.status.waiting_for == reasons.CLAIM_STRANDED
        where = f"claim default/disk is allocated on node {node}, where the pod can't go: node {node}: "
        assert scheduling.status.message.startswith(f"{where}{why}")
        assert [event for event in await world.events_on("next") if event[0] == scheduling.status.waiting_for] == [
            (reasons.CLAIM_STRANDED, scheduling.status.message)
        ]
        await mend(world, node)
        await world.settle(5)
        assert await world.node_of("next") == node

    play(scenario)


def test_a_pod_that_others_of_its_claim_keep_running_without_it_is_told_the_same(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b", shareable=True)
        await world.add_pod("runs", claims=["disk"])
        await world.settle(5)
        node = await world.node_of("runs")
        await cordon(world, node)

        await world.add_pod("next", claims=["disk"])
        await world.settle(5)

        scheduling = await world.scheduling("next")
        assert scheduling.status.waiting_for == reasons.CLAIM_STRANDED
        assert scheduling.status.message.endswith("elsewhere once the pods that use it have ended")

    play(scenario)


def test_what_the_pod_itself_selects_strands_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        node = await run_pod(world, "first")
        other = "b" if node == "a" else "a"

        await world.add_pod("next", claims=["disk"], nodeSelector={"kubernetes.io/hostname": other})
        await world.settle(5)

        assert (await world.scheduling("next")).status.waiting_for == reasons.NO_CANDIDATES

    play(scenario)


def condition(claim: ResourceClaim, of_type: str) -> Condition | None:
    return next((found for found in claim.status.conditions if found.type == of_type), None)


CONDITIONS: Mapping[str, tuple[Change, Change, str, str]] = {
    "cordoned": (cordon, uncordon, "NodeCordoned", "cordoned and takes no pods. Remedy: uncordon the node, or "),
    "unreachable": (
        taint,
        untaint,
        "NodeUnreachable",
        "unreachable and takes no pods. Remedy: bring the node back, or ",
    ),
    "deleted": (delete, come_back, "NodeDeleted", "deleted and takes no pods. Remedy: "),
}


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize(("strand", "mend", "reason", "text"), CONDITIONS.values(), ids=CONDITIONS)
def test_the_claim_itself_shows_that_its_node_takes_no_pods(
    play: Play, strand: Change, mend: Change, reason: str, text: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        node = await run_pod(world, "first")
        await strand(world, node)
        await world.settle(5)

        claim = await world.claim("disk")
        stranded, ready = condition(claim, "Stranded"), condition(claim, "Ready")
        assert stranded is not None
        assert ready is not None
        assert (stranded.status, stranded.reason) == ("True", reason)
        assert stranded.message == (
            f"node {node}, where the claim is allocated, is {text}delete the claim to start over elsewhere"
        )
        assert (ready.status, ready.reason, ready.message) == ("False", "ClaimStranded", stranded.message)

        await mend(world, node)
        await world.settle(5)
        claim = await world.claim("disk")
        ready = condition(claim, "Ready")
        assert condition(claim, "Stranded") is None
        assert ready is not None
        assert ready.status == "True"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_is_not_allocated_any_more_is_not_stranded(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        await cordon(world, await run_pod(world, "first"))
        await world.settle(2 * KEEP)
        claim = await world.claim("disk")
        assert claim.status.allocation is None
        assert condition(claim, "Stranded") is None

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_node_writes_nothing_about_claims_that_are_elsewhere(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        node = await run_pod(world, "first")
        before = (await world.claim("disk")).metadata.resource_version
        for change in (cordon, uncordon, delete):
            await change(world, "b" if node == "a" else "a")
            await world.settle(5)
        assert (await world.claim("disk")).metadata.resource_version == before

    play(scenario)
