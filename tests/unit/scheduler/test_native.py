"""What the native path does for pods, told on the in-memory cluster."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.two_nodes import NAMESPACE, two_nodes

from parley.api.opaque import read
from parley.api.resources import NODES, PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_a_pod_with_two_claims_lands_where_both_are(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        assert await world.node_of("p") == "b"
        assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}
        scheduling = await world.scheduling("p")
        assert scheduling.spec.selected_node == "b"
        assert set(scheduling.spec.candidate_nodes) == {"a", "b"}
        assert scheduling.status.waiting_for == ""
        assert {claim.name: claim.viable_nodes for claim in scheduling.status.claims} == {
            "gpu-0": ("b",),
            "gpu-1": ("b",),
        }
        assert (
            scheduling.status.claims[0].reason == "a: 1 device free, but not for all 2 claims of the pod together"
        )

    play(scenario)


def test_a_deleted_pod_frees_its_devices_for_the_next(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        for round_ in range(3):
            await world.add_pod(f"p{round_}", "one", "one")
            await world.settle()
            assert await world.node_of(f"p{round_}") == "b"
            await world.delete_pod(f"p{round_}")
            await world.settle()
            assert not await world.mirrors()
        assert world.controller is not None
        assert len(world.controller.ledger) == 0

    play(scenario)


def test_ten_pods_over_three_devices_run_three_at_a_time(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        for i in range(10):
            await world.add_pod(f"p{i}", "one")
        await world.settle()
        finished: set[str] = set()
        for _ in range(4):
            running = [f"p{i}" for i in range(10) if await world.node_of(f"p{i}") and f"p{i}" not in finished]
            waiting = [f"p{i}" for i in range(10) if not await world.node_of(f"p{i}")]
            assert len(running) == min(3, 10 - len(finished))
            assert all(count == 1 for count in (await world.devices()).values())
            for name in waiting:
                scheduling = await world.scheduling(name)
                assert scheduling.status.waiting_for == "NothingViable"
                assert scheduling.status.message == (
                    "0 of 2 nodes are available: node a: claim gpu-0: 0 of 1 device free, 1 wanted; "
                    "node b: claim gpu-0: 0 of 2 devices free, 1 wanted. "
                    "Remedy: free resources, request less, or add nodes that have what is requested"
                )
                assert [reason for reason, _ in await world.events_on(name)] == ["NothingViable"]
            for name in running:
                await world.finish_pod(name)
                finished.add(name)
            await world.settle()
        assert len(finished) == 10

    play(scenario)


def test_a_node_that_the_scheduler_refuses_is_left_and_the_scheduler_chooses(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_node("c", devices=1)
        await world.create(
            PODS,
            {
                "metadata": {"name": "grump", "namespace": NAMESPACE, "labels": {"app": "grump"}},
                "spec": {"nodeName": "a", "containers": [{"name": "main", "image": "none"}]},
            },
        )
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for i in range(3):
            await world.add_pod(f"p{i}", "one", affinity=affinity)
        await world.settle(400)
        nodes = sorted([await world.node_of(f"p{i}") for i in range(3)])
        assert nodes == ["b", "b", "c"]
        assert all(count == 1 for count in (await world.devices()).values())

    play(scenario)


@pytest.mark.scheduling_paths("native")  # offers are made by the native path alone
def test_a_class_may_ask_that_the_scheduler_chooses_from_the_start(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("exact", placement="Exact")
        await world.add_template("exact", "exact")
        await world.add_pod("p", "exact", "exact")
        await world.settle()
        assert await world.node_of("p") == "b"
        for mirror in await world.mirrors():
            assert read(mirror.status.devices[0].data)["devices"][0]["pool"] == "b"
        assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}

    play(scenario)


def test_a_pod_bound_by_others_is_served_where_it_is(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        await world.add_pod("q", "one", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        assert (await world.scheduling("q")).status.message.startswith(
            "the pod is bound to node a: claim gpu-0: 0 of 1 device free, 1 wanted."
        )

    play(scenario)


@pytest.mark.scheduling_paths("native")  # the words about nodes that a scheduler of its own filters
def test_resources_taints_and_suitable_nodes_decide_about_candidates(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b", devices=1, labels={"zone": "west"})
        await world.add_node("c", devices=1, labels={"zone": "west"})
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [term]})
        await world.add_template()
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        world.start_parley()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "c"
        await world.add_pod("q", "one")
        await world.settle()
        assert (await world.scheduling("q")).status.message == (
            "0 of 3 nodes are available: node a: not among the suitableNodes of class gpu; node b: cordoned; "
            "node c: claim gpu-0: 0 of 1 device free, 1 wanted. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await world.settle()
        assert await world.node_of("q") == "b"

    play(scenario)


def test_a_pod_that_fits_nowhere_else_does_not_make_claims_go_in_circles(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for node in ("a", "b"):
            await world.create(
                PODS,
                {
                    "metadata": {"name": f"grump-{node}", "namespace": NAMESPACE, "labels": {"app": "grump"}},
                    "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
                },
            )
        await world.add_pod("p", "one", affinity=affinity)
        await world.settle(2.0)
        before = int(world.server.resource_version)
        await asyncio.sleep(3600)
        assert int(world.server.resource_version) - before < 300
        assert await world.node_of("p") == ""
        await world.delete_pod("grump-b")
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_pods_that_want_the_same_beside_different_shared_claims_do_not_wait_in_one_line(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, devices=2, labels={"name": node})
            term = {"matchExpressions": [{"key": "name", "operator": "In", "values": [node]}]}
            await world.add_class(node, shareable=True, suitableNodes={"nodeSelectorTerms": [term]})
            await world.add_claim(f"on-{node}", node)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        for node in ("a", "b"):
            await world.add_pod(f"holds-{node}", "one", claims=[f"on-{node}"])
        await world.settle()
        for node in ("a", "b"):
            await world.add_pod(f"waits-{node}", "one", claims=[f"on-{node}"])
        await world.settle()
        before = int(world.server.resource_version)
        await world.settle(600)
        assert int(world.server.resource_version) == before
        await world.delete_pod("holds-b")
        await world.settle()
        assert await world.node_of("waits-a") == ""
        assert await world.node_of("waits-b") == "b"

    play(scenario)
