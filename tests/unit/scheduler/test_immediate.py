"""Claims with allocationMode Immediate are allocated without a pod: where, when, and within which limits."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.unit.scheduler.immediate_claims import condition, device_of, gpus, is_free, is_used_by, says, shelves
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, restart

from parley.api.resources import CLAIMS, CLASSES, NODES
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


def test_a_claim_is_allocated_at_once_and_its_mirror_waits_for_a_pod(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=0, b=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        status = (await world.claim("now")).status
        assert status.driver_name == DeviceDriver.name
        assert device_of(status) == ("b", "gpu-0")
        assert await says(world) == ("True", "Allocated", "allocated on node b")
        assert (await condition(world, of_type="Accepted")).status == "True"
        await is_free(world)
        await world.add_pod("p", claims=["now"])
        await world.settle()
        assert await world.node_of("p") == "b"
        await is_used_by(world, "p")
        assert await world.devices() == {("b", "gpu-0"): 1}
        assert await world.events_on("p") == []

    play(scenario)


def test_claim_and_pod_made_at_the_same_moment_cause_no_complaint(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.settle()
        await world.add_pod("p", claims=["now"])
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        assert await world.node_of("p") == "a"
        assert [code for code, _ in await world.events_on("p")] in ([], ["ClaimNotFound"])

    play(scenario)


def test_a_claim_for_which_nothing_is_left_says_so_and_gets_what_comes_free(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_pod("holds", "one")
        await world.settle()
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        words = (
            "0 of 1 node is available: node a: claim now: 0 of 1 device free, 1 wanted. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        assert await says(world) == ("False", "NothingViable", words)
        assert ready(await world.claim("now")) == "NothingViable"
        waits = (await world.scheduling("p")).status
        assert waits.waiting_for == "ClaimPending"
        assert waits.message == f"claim default/now is not allocated yet: {words}"
        assert await world.events_on("p") == [("ClaimPending", waits.message)]
        await world.delete_pod("holds")
        await world.settle()
        assert (await says(world))[:2] == ("True", "Allocated")
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_new_node_serves_a_claim_that_waits(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        assert await says(world) == (
            "False",
            "NoCandidates",
            "0 of 0 nodes are available: the cluster has no nodes. Remedy: add a node",
        )
        await world.add_node("a", devices=1)
        await world.settle()
        assert (await says(world))[0] == "True"

    play(scenario)


def test_only_suitable_schedulable_nodes_without_taints_come_into_question(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in "abcd":
            await world.add_node(node, devices=1, labels={"zone": "far" if node == "a" else "near"})
        taints = {"b": "NoSchedule", "d": "PreferNoSchedule"}
        for node, effect in taints.items():
            taint = {"key": "kept", "effect": effect}
            await world.client.patch(NODES, node, {"spec": {"taints": [taint]}})
        await world.client.patch(NODES, "c", {"spec": {"unschedulable": True}})
        near = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["near"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [near]})
        world.start_parley()
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        assert await says(world) == ("True", "Allocated", "allocated on node d")
        await world.add_claim("next", mode="Immediate")
        await world.settle()
        status, code, words = await says(world, "next")
        assert (status, code) == ("False", "NothingViable")
        assert words == (
            "0 of 4 nodes are available: node a: not among the suitableNodes of class gpu; node b: taint "
            "kept:NoSchedule; node c: cordoned; node d: claim next: 0 of 1 device free, 1 wanted. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        await world.client.patch(NODES, "c", {"spec": {"unschedulable": None}})
        await world.settle()
        assert await says(world, "next") == ("True", "Allocated", "allocated on node c")

    play(scenario)


def test_the_driver_prefers_among_viable_nodes(play: Any) -> None:
    async def scenario(world: World) -> None:
        await shelves(world, Behaviour(other=9, scores={"c": 1.0, "a": 0.5}), "abcd")
        await world.add_claim("now", "shelf", mode="Immediate")
        await world.settle()
        assert (await says(world))[2] == "allocated on node c"

    play(scenario)


def test_a_claim_over_the_limit_waits_until_there_is_room(play: Any) -> None:
    async def scenario(world: World) -> None:
        await shelves(world, Behaviour(other=100), limits=[{"units": 5}])
        await world.add_pod("p", "shelf")
        await world.add_claim("first", "shelf", mode="Immediate", count=3)
        await world.settle()
        for name in ("now", "later"):
            await world.add_claim(name, "shelf", mode="Immediate", count=2)
        await world.settle()
        words = (
            "namespace default holds 4 of 5 units that class shelf allows it, 2 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].units"
        )
        assert await says(world) == await says(world, "later") == ("False", "LimitReached", words)
        await world.delete_pod("p")
        await world.settle()
        assert ((await says(world))[0], (await says(world, "later"))[0]) == ("True", "False")
        await world.client.patch(CLASSES, "shelf", {"limits": []})
        await world.settle()
        assert (await says(world, "later"))[0] == "True"

    play(scenario)


def test_limits_count_immediate_claims_over_a_restart(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=100)
        await shelves(world, behaviour, limits=[{"units": 3}])
        await world.add_claim("now", "shelf", mode="Immediate", count=3)
        await world.settle()
        await restart(world, [ShelfDriver(behaviour)])
        await world.add_pod("p", "shelf")
        await world.settle()
        assert (await world.scheduling("p")).status.waiting_for == "LimitReached"
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        assert await world.node_of("p")

    play(scenario)


def test_parameters_that_the_driver_does_not_understand_are_told_in_both_conditions(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate", count=0)
        await world.add_pod("p", claims=["now"])
        await world.settle()
        accepted = await condition(world, of_type="Accepted")
        assert (accepted.status, accepted.reason) == ("False", "ParametersInvalid")
        assert await says(world) == ("False", "ParametersInvalid", accepted.message)
        assert "count" in accepted.message
        waits = (await world.scheduling("p")).status
        assert waits.message == f"claim default/now is not allocated yet: {accepted.message}"

    play(scenario)


def test_a_class_that_comes_later_serves_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", "late", mode="Immediate")
        await world.settle()
        assert (await condition(world, of_type="Accepted")).reason == "ClassNotFound"
        await world.add_class("late")
        await world.settle()
        assert (await says(world))[0] == "True"

    play(scenario)


def test_claims_that_wait_are_not_polled_and_one_change_costs_one_question_for_each_line(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(places={"a": 1})
        await shelves(world, behaviour)
        await world.add_pod("p", "shelf")
        await world.settle()
        for i in range(40):
            await world.add_claim(f"one-{i}", "shelf", mode="Immediate")
            await world.add_claim(f"two-{i}", "shelf", mode="Immediate", count=2)
        await world.settle()
        asked, version = behaviour.calls["viable"], world.server.resource_version
        await asyncio.sleep(36_000)
        assert (behaviour.calls["viable"], world.server.resource_version) == (asked, version)
        await world.delete_pod("p")
        await world.settle()
        claims = (await world.client.list(CLAIMS)).items
        assert [c.metadata.name for c in claims if c.status.allocation is not None] == ["one-0"]
        assert behaviour.calls["viable"] - asked < 12

    play(scenario)


def test_a_claim_that_leaves_the_line_lets_the_next_one_try(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(places={"a": 1})
        await shelves(world, behaviour)
        await world.add_pod("p", "shelf")
        await world.settle()
        for name in ("x", "y", "z"):
            await world.add_claim(name, "shelf", mode="Immediate")
            await world.settle()
        await world.client.delete(CLAIMS, "x", NAMESPACE)
        await world.delete_pod("p")
        await world.settle()
        assert [(await says(world, name))[0] for name in ("y", "z")] == ["True", "False"]

    play(scenario)
