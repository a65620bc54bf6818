"""Claims with allocationMode Immediate: allocated without a pod, used by pods, kept until they are deleted."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.support.faults import FaultClient
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.shelf import (
    Behaviour,
    ShelfDriver,
    add_shelf_class,
    failing,
    no_trouble,
    restart,
    slow,
)

from parley.api.meta import Condition
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES, PODS
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Invalid, OutcomeUnknown
from parley.sdk import Allocation, Answer, Driver, Held, NoParameters, PermanentError, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


async def gpus(world: World, **devices: int) -> None:
    """Nodes with devices, the class gpu and the template one."""
    for node, count in devices.items():
        await world.add_node(node, devices=count)
    await world.add_class()
    await world.add_template()
    world.start_parley()


async def shelves(world: World, behaviour: Behaviour, nodes: str = "ab", **class_: Any) -> None:
    for node in nodes:
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour)])


async def condition(world: World, claim: str = "now", of_type: str = "Allocated") -> Condition:
    (found,) = [c for c in (await world.claim(claim)).status.conditions if c.type == of_type]
    return found


async def says(world: World, claim: str = "now") -> tuple[str, str, str]:
    found = await condition(world, claim)
    return found.status, found.reason, found.message


async def is_free(world: World, claim: str = "now") -> None:
    """Allocated, and nobody's: the mirror has no allocation, so that nobody but Parley says who is next."""
    status = (await world.claim(claim)).status
    assert ready(await world.claim(claim)) == "Ready"
    assert status.reserved_for == ()
    assert status.allocation is not None
    mirror = await world.mirror(claim)
    assert mirror is not None
    assert (mirror.status.allocation, mirror.status.reserved_for) == (None, [])


async def is_used_by(world: World, *pods: str, claim: str = "now") -> None:
    status = (await world.claim(claim)).status
    assert (await condition(world, claim)).status == "True"
    assert sorted(user.name for user in status.reserved_for) == sorted(pods)
    mirror = await world.mirror(claim)
    assert mirror is not None
    assert mirror.status.allocation is not None
    assert sorted(user.name for user in mirror.status.reserved_for) == sorted(pods)


def device_of(status: Any) -> tuple[str, str]:
    (handle,) = status.allocation.handles
    ((device),) = handle.devices
    return device.pool, device.device


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


def test_a_node_where_the_driver_fails_is_left_for_another(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, scores={"a": 1.0}, trouble=failing(RuntimeError("stuck"), "a"))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await world.settle()
        assert behaviour.allocated == ["a", "b"]
        assert await says(world) == ("True", "Allocated", "allocated on node b")

    play(scenario)


def test_failures_everywhere_are_told_and_tried_again_after_growing_pauses(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=failing(RuntimeError("stuck")))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(3600)
        assert 15 < len(behaviour.allocated) < 30
        status, code, words = await says(world)
        node = behaviour.allocated[-1]
        assert (status, code) == ("False", "AllocationFailed")
        assert words == f"driver shelf.example.com could not allocate on node {node}: stuck"
        behaviour.trouble = no_trouble
        await asyncio.sleep(301)
        assert (await says(world))[0] == "True"

    play(scenario)


def test_a_node_where_the_driver_never_will_is_excluded_until_the_class_changes(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=failing(PermanentError("no such shelf")))
        await shelves(world, behaviour, onPermanentError="FailPod")
        await world.add_claim("now", "shelf", mode="Immediate")
        await world.settle()
        await asyncio.sleep(3600)
        assert sorted(behaviour.allocated) == ["a", "b"]
        status, code, words = await says(world)
        assert (status, code) == ("False", "NothingViable")
        assert words.startswith(
            "0 of 2 nodes are available: node a: claim now: driver shelf.example.com could not allocate on node "
            "a: no "
        )
        behaviour.trouble = no_trouble
        await world.client.patch(CLASSES, "shelf", {"scoreWeight": 2})
        await world.settle()
        assert (await says(world))[0] == "True"

    play(scenario)


def test_a_driver_that_takes_too_long_is_cut_off(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=slow(40))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(31)
        status, code, words = await says(world)
        assert (status, code) == ("False", "AllocationFailed")
        assert words.endswith("no result within 30 s: a driver that takes longer has to set asynchronous = True")

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


def test_a_deleted_claim_goes_after_its_last_pod_and_gives_its_device_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.add_pod("late", claims=["now"])
        await world.add_pod("other", "one")
        await asyncio.sleep(60)  # the scheduler tries the late one again and again
        assert (await world.scheduling("late")).status.waiting_for == "ClaimBeingDeleted"
        await is_used_by(world, "p")
        assert await world.node_of("other") == ""
        await world.delete_pod("p")
        await world.settle()
        assert not (await world.client.list(CLAIMS)).items
        assert await world.mirror("now") is None
        assert await world.node_of("other") == "a"

    play(scenario)


@pytest.mark.parametrize("allocated", [True, False])
def test_a_deleted_claim_without_pods_goes_at_once(play: Any, allocated: bool) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=int(allocated))
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        assert ((await world.claim("now")).status.allocation is not None) == allocated
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await nothing_is_left(world)

    play(scenario)


def test_a_claim_deleted_while_its_driver_allocates_leaves_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, trouble=slow(10))
        await shelves(world, behaviour, "a")
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(5)
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await nothing_is_left(world)
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_claim_that_was_forced_away_gives_its_device_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.client.patch(CLAIMS, "now", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_mirror_that_somebody_deletes_is_made_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "now", NAMESPACE)
        await world.settle()
        await is_free(world)
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await is_used_by(world, "p")

    play(scenario)


def test_pods_that_come_while_the_mirror_of_their_shared_claim_goes_get_the_next_one(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_class("common", shareable=True)
        for name, mode in (("now", "Immediate"), ("delayed", "")):
            await world.add_claim(name, "common", mode=mode)
            await world.settle()
            await world.add_pod("p", claims=[name])
            await world.add_pod("q", claims=[name])
            await world.client.delete(BUILTIN_CLAIMS, name, NAMESPACE)
            await world.settle(400)
            await is_used_by(world, "p", "q", claim=name)
            for pod in "pq":
                await world.delete_pod(pod)
            await world.settle()
            await world.client.delete(CLAIMS, name, NAMESPACE)
            await world.settle()
            await nothing_is_left(world)

    play(scenario)


def test_a_record_that_somebody_clears_is_written_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=2)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        before = (await world.claim("now")).status.allocation
        nothing = {"status": {"allocation": None, "driverName": None}}
        await world.client.patch(CLAIMS, "now", nothing, NAMESPACE, subresource="status")
        await world.settle()
        await is_free(world)
        assert (await world.claim("now")).status.allocation == before

    play(scenario)


@pytest.mark.parametrize("used", [True, False])
def test_a_restart_takes_nothing_back(play: Any, used: bool) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        if used:
            await world.add_pod("p", claims=["now"])
        await world.settle()
        version = world.server.resource_version
        await restart(world, [DeviceDriver()], after=20)
        await world.settle(400)
        written = world.server.resource_version - version
        assert written == (0 if used else 1), "a new leader changes the built-in claim that shows no allocation"
        await world.add_pod("other", "one")
        await world.add_pod("q", claims=["now"])
        await world.settle()
        assert (await world.scheduling("other")).status.waiting_for == "NothingViable"
        if used:
            await is_used_by(world, "p")
            await world.delete_pod("p")
            await world.settle()
        await is_used_by(world, "q")

    play(scenario)


def test_a_pod_that_ended_while_nobody_looked_frees_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await gpus(world, a=1)
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        (task,) = world._tasks[-1:]
        world.killed.add(task)
        task.cancel()
        await world.delete_pod("p")
        await asyncio.sleep(20)
        world.start_parley()
        await world.settle()
        await is_free(world)

    play(scenario)


@pytest.mark.parametrize("happened", [True, False])
def test_a_record_of_unknown_outcome_is_settled_and_nothing_is_handed_out_twice(play: Any, happened: bool) -> None:
    async def scenario(world: World) -> None:
        lost: list[Call] = []

        def lose(call: Call) -> None:
            status = call.body.get("status") if isinstance(call.body, dict) else None
            if call.resource is CLAIMS and status and status.get("allocation") and len(lost) < 3:
                lost.append(call)
                raise OutcomeUnknown("the connection broke")

        hooks = {"after" if happened else "before": lose}
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), **hooks))
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("other", "one")
        await world.settle()
        assert len(lost) == (1 if happened else 3)
        await is_free(world)
        assert await world.node_of("other") == ""

    play(scenario)


def test_a_record_that_the_api_server_refuses_is_told_and_holds_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        refusing, refused = [True], [0]

        def refuse(call: Call) -> None:
            status = call.body.get("status") if isinstance(call.body, dict) else None
            if call.resource is CLAIMS and status and status.get("allocation") and refusing:
                refused[0] += 1
                raise Invalid(422, "Invalid", "status.allocation: too long")

        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=refuse))
        await world.add_claim("now", mode="Immediate")
        await asyncio.sleep(3600)
        assert 10 < refused[0] < 30
        words = "the API server refused the allocation: status.allocation: too long"
        assert await says(world) == ("False", "AllocationFailed", words)
        await world.add_pod("other", "one")
        await world.settle(30)
        assert await world.node_of("other") == "a"
        await world.delete_pod("other")
        refusing.clear()
        await asyncio.sleep(400)
        assert (await says(world))[0] == "True"

    play(scenario)


class Racks(Driver[NoParameters, NoParameters]):
    """Outside of the controller: one place on each of its nodes."""

    name = "racks.example.com"
    parameters = NoParameters
    class_parameters = NoParameters

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.held: dict[str, str] = {}

    def viable(self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        viable = tuple(node for node in nodes if node in self.nodes and node not in self.held.values())
        return {c.name: Answer(viable, None, dict.fromkeys(nodes, "no rack")) for c in request.claims}

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        (claim,) = request.claims
        self.held[claim.uid] = node
        return {claim.name: Allocation(data={"rack": node})}

    async def deallocate(self, uid: str) -> None:
        self.held.pop(uid, None)

    def restore(self, held: Held) -> None:
        assert held.node is not None
        self.held[held.uid] = held.node


def test_a_driver_outside_allocates_by_itself_and_is_asked_back_only_when_the_claim_is_deleted(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in "abc":
            await world.add_node(node)
        await world.add_class("rack", driverName=Racks.name)
        world.start_parley(drivers=[])
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        waits = (await world.scheduling("p")).status
        assert (waits.waiting_for, waits.message) == (
            "ClaimPending",
            "claim default/now is not allocated yet: "
            "driver racks.example.com has yet to allocate it, without a pod",
        )
        world.start_driver(driver := Racks("b"))
        await world.settle()
        assert await world.node_of("p") == "b"
        await is_used_by(world, "p")
        await world.add_pod("q", claims=["now"])
        await asyncio.sleep(60)
        await world.delete_pod("p")
        await world.settle()
        await is_used_by(world, "q")
        await world.delete_pod("q")
        await world.settle()
        await is_free(world)
        await restart(world, [], after=20)
        await world.settle(400)
        await is_free(world)
        assert list(driver.held.values()) == ["b"]
        await world.add_pod("r", claims=["now"])
        await world.settle()
        await is_used_by(world, "r")
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await is_used_by(world, "r")
        await world.delete_pod("r")
        await world.settle()
        await nothing_is_left(world)
        assert driver.held == {}

    play(scenario)


def test_a_claim_of_a_driver_outside_serves_pods_after_those_of_an_earlier_one_of_its_name(play: Any) -> None:
    """The earlier one was forced away while a pod used it, and the driver has allocated the next one since."""

    async def scenario(world: World) -> None:
        for node in "abc":
            await world.add_node(node)
        await world.add_class("rack", driverName=Racks.name)
        world.start_parley(drivers=[])
        world.start_driver(driver := Racks("b", "c"))
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await is_used_by(world, "p")
        await world.force_away("now")
        await world.settle()
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("q", claims=["now"])
        await world.settle()
        assert not await world.node_of("q")
        await world.finish_pod("p")
        await world.settle()
        assert (await world.pod("q")).status.phase == "Running"
        await is_used_by(world, "q")
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.delete_pod("q")
        await world.settle()
        assert driver.held == {}
        assert len(world.ledger) == 0

    play(scenario)
