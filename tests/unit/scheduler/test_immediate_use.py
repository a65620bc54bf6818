"""Pods use claims with allocationMode Immediate where these are allocated: one at a time, or together."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.immediate_claims import device_of, gpus, is_free, is_used_by

from parley.api.resources import CLAIMS, NODES, PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


@pytest.mark.parametrize("end", ["delete_pod", "finish_pod"])
def test_the_allocation_outlives_its_pods(play: Any, end: str) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        before = (await world.claim("now")).status.allocation
        for pod in ("p", "q"):
            await world.add_pod(pod, claims=["now"])
            await world.settle()
            assert await world.node_of(pod) == device_of((await world.claim("now")).status)[0]
            await is_used_by(world, pod)
            await getattr(world, end)(pod)
            await world.settle()
            await is_free(world)
        assert (await world.claim("now")).status.allocation == before

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender has an order of its own
def test_pods_use_an_exclusive_claim_one_at_a_time_in_the_order_of_their_arrival(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=1)
        await world.add_claim("now", mode="Immediate")
        pods = [f"p{i}" for i in range(6)]
        for pod in pods:
            await world.add_pod(pod, claims=["now"])
        for position, pod in enumerate(pods):
            await world.settle()
            assert [bool(await world.node_of(p)) for p in pods[position:]] == [True] + [False] * (5 - position)
            await is_used_by(world, pod)
            if position < 5:
                waits = (await world.scheduling(pods[position + 1])).status
                assert waits.waiting_for == "ClaimInUse"
                assert waits.message.startswith(
                    f"claim default/now is not shareable and pod default/{pod} uses it"
                )
            for other in pods[position + 2 :]:  # being looked at is no way to get ahead
                await world.client.patch(PODS, other, {"metadata": {"labels": {"seen": pod}}}, NAMESPACE)
            await world.delete_pod(pod)
        await world.settle()
        await is_free(world)

    play(scenario)


def test_pods_share_a_claim_of_a_shareable_class(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=1)
        await world.add_class("common", shareable=True)
        await world.add_claim("now", "common", mode="Immediate")
        for pod in "pqr":
            await world.add_pod(pod, claims=["now"])
        await world.settle()
        assert len({await world.node_of(pod) for pod in "pqr"} - {""}) == 1
        await is_used_by(world, "p", "q", "r")
        await world.delete_pod("q")
        await world.settle()
        await is_used_by(world, "p", "r")
        for pod in "pr":
            await world.delete_pod(pod)
        await world.settle()
        await is_free(world)

    play(scenario)


def grump(node: str) -> dict[str, Any]:
    """A pod on the node that those of `apart` do not want beside them."""
    return {
        "metadata": {"name": f"grump-{node}", "namespace": NAMESPACE, "labels": {"app": "grump"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


def apart() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.scheduling_paths("native")  # the extender path knows what its scheduler refuses before
def test_a_pod_that_the_scheduler_refuses_waits_and_the_claim_stays(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=0)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        before = (await world.claim("now")).status.allocation
        await world.create(PODS, grump("a"))
        await world.add_pod("p", claims=["now"], affinity=apart())
        await world.settle(2.0)
        version = int(world.server.resource_version)
        await asyncio.sleep(3600)
        assert int(world.server.resource_version) - version < 300
        assert await world.node_of("p") == ""
        assert (await world.scheduling("p")).status.waiting_for == "SchedulerRefused"
        assert (await world.claim("now")).status.allocation == before
        await world.delete_pod("grump-a")
        await world.settle()
        assert await world.node_of("p") == "a"
        await is_used_by(world, "p")

    play(scenario)


def test_while_a_refused_pod_pauses_the_next_one_may_have_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=0)
        await world.add_claim("now", mode="Immediate")
        await world.create(PODS, grump("a"))
        await world.add_pod("p", claims=["now"], affinity=apart())
        await asyncio.sleep(1)
        await world.add_pod("q", claims=["now"])
        await asyncio.sleep(400)
        assert (await world.node_of("p"), await world.node_of("q")) == ("", "a")
        await is_used_by(world, "q")

    play(scenario)


def test_a_pod_waits_for_a_delayed_claim_where_its_immediate_claim_is(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.add_pod("holds", "one")
        await world.settle()
        await world.add_node("b", devices=2)
        await world.add_pod("p", "one", claims=["now"])
        await world.settle(400)
        waits = (await world.scheduling("p")).status
        assert waits.waiting_for == "NothingViable"
        assert waits.message == (
            "0 of 2 nodes are available: node a: claim gpu-0: 0 of 2 devices free, 1 wanted; "
            "node b: a claim of the pod is allocated elsewhere. "
            "Remedy: free resources, request less, or add nodes that have what is requested. "
            "Claim default/now is allocated on node a"
        )
        await is_free(world)
        await world.delete_pod("holds")
        await world.settle()
        assert await world.node_of("p") == "a"
        assert (await world.devices()) == {("a", "gpu-0"): 1, ("a", "gpu-1"): 1}

    play(scenario)


def test_two_claims_on_different_nodes_serve_no_pod_together_until_one_is_made_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("left", mode="Immediate")
        await world.settle()
        await world.add_node("b", devices=2)
        await world.add_claim("right", mode="Immediate")
        await world.settle()
        await world.add_pod("p", claims=["left", "right"])
        await world.settle(400)
        waits = (await world.scheduling("p")).status
        assert (waits.waiting_for, waits.message) == (
            "ConflictingAllocations",
            "no node has all claims of the pod: claim default/left is allocated on node a; claim default/right is "
            "allocated on node b. Remedy: delete those on one of the nodes to start over",
        )
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.client.delete(CLAIMS, "left", NAMESPACE)
        await world.settle()
        await world.add_claim("left", mode="Immediate")
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_pod_whose_node_others_chose_uses_the_claim_there_or_says_why_not(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1, b=0)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.add_pod("wrong", claims=["now"], nodeName="b")
        await world.settle(400)
        waits = (await world.scheduling("wrong")).status
        assert waits.waiting_for == "NoCandidates"
        assert waits.message.endswith("Claim default/now is allocated on node a")
        assert (await world.claim("now")).status.reserved_for == ()
        await world.delete_pod("wrong")
        await world.add_pod("right", claims=["now"], nodeName="a")
        await world.settle()
        await is_used_by(world, "right")

    play(scenario)
