"""Claim preemption beside what schedulers do: they refuse nodes, evict ordinary pods, bind late, or never."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.claim_preemption.preempting import RIGHT_LACKING, begin, budget, hold
from tests.unit.scheduler.grump import APART, add_grump

from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley.kube.client import Forbidden
from parley.negotiation.waiting import Place
from parley.scheduler.attempts import BOUND_SECONDS, Attempt

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


@pytest.mark.scheduling_paths("native")
def test_where_ordinary_pods_have_the_cpu_the_scheduler_evicts_these_afterwards(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        for node, level in (("a", 5), ("b", 20)):
            await world.add_pod(f"ordinary-{node}", nodeName=node, priority=level, containers=requesting(cpu=2))
            await world.add_pod(f"low-{node}", "one", nodeName=node, containers=requesting(cpu=4))
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(10)
        assert evicted == ["low-a"]
        assert (await world.scheduling("large")).status.message == (
            "node a: pod default/low-a of lower priority evicted; what they hold there is kept for this pod, and "
            "its scheduler has to evict other pods of lower priority there"
        )
        world.kubelets.start("a")
        await world.settle()
        assert evicted == ["low-a", "ordinary-a"]
        assert await world.node_of("large") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_the_node_that_others_left_for_it_comes_before_one_where_it_would_fit_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await world.add_pod("ordinary", nodeName="a", priority=5, containers=requesting(cpu=2))
        await world.add_pod("low-a", "one", nodeName="a", containers=requesting(cpu=4))
        await world.add_pod("low-b", "one", nodeName="b", priority=9, containers=requesting(cpu=4))
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(10)
        assert evicted == ["low-a"]
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": False}})
        await world.settle(10)
        world.kubelets.start("a")
        await world.settle()
        assert evicted == ["low-a", "ordinary"]
        assert await world.node_of("large") == "a"

    play(scenario)


def test_for_a_pod_that_is_never_bound_few_are_evicted(play: Play) -> None:
    """Its scheduler refuses it for reasons that Parley does not know; whatever was evicted is made again."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("urgent", "one", priority=10, schedulerName="asleep")
        await world.settle(20)
        for number in range(4 * 120):
            if not any(pod.metadata.name.startswith("low") for pod in (await world.client.list(PODS)).items):
                await world.add_pod(f"low-{number}", "one")
            await world.add_pod(f"job-{number}", nodeName="a")  # its end makes Parley try refused nodes again
            await asyncio.sleep(30)
            await world.delete_pod(f"job-{number}")
        assert 1 <= sum(name.startswith("low") for name in evicted) <= 7  # in four hours: see EVICTIONS

    play(scenario)


def test_a_pod_of_lower_priority_that_is_being_bound_is_not_deleted_before_it_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("low", "one", schedulerName="asleep")
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(BOUND_SECONDS / 2)
        assert evicted == []
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        await world.client.create_subresource(PODS, "low", "binding", {"target": target}, "default")
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.parametrize("guarded", [False, True], ids=["", "a budget spares one elsewhere"])
def test_where_a_scheduler_refused_the_pod_others_are_evicted_after_a_pause(play: Play, guarded: bool) -> None:
    """While it was refused, a pod of lower priority got the device."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        if guarded:
            await world.add_node("b", 1)
            await world.add_pod("guarded", "one", nodeSelector={"kubernetes.io/hostname": "b"})
            await world.client.patch(PODS, "guarded", {"metadata": {"labels": {"app": "spared"}}}, "default")
            await budget(world, 0, app="spared")
            await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, schedulerName="asleep")
        await world.settle(3)
        await world.add_pod("low", "one")
        await world.settle(3)
        (mirror,) = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("urgent")]
        cleared = {"allocation": None, "reservedFor": None}
        await world.client.patch(
            BUILTIN_CLAIMS, mirror.metadata.name, {"status": cleared}, "default", subresource="status"
        )
        await asyncio.sleep(2)
        assert await world.node_of("low") == "a"
        assert evicted == []
        await asyncio.sleep(120 if guarded else 30)
        assert evicted == ["low"]

    play(scenario)


def test_for_a_pod_that_the_scheduler_refuses_where_it_could_be_others_are_evicted_elsewhere(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=0)
        free = {"a": "b", "b": "a"}[await world.node_of("low")]
        await add_grump(world, free, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") not in ("", free)

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_the_scheduler_refuses_where_it_could_be_is_told_why_nobody_is_evicted_elsewhere(
    play: Play,
) -> None:
    def forbid(call: NumberedCall) -> None:
        if call.subresource == "eviction":
            raise Forbidden(403, "Forbidden", RIGHT_LACKING)

    async def scenario(world: World) -> None:
        await begin(world, client=FaultClient(world.server.client(), before=forbid), a=1, b=1)
        await hold(world, low=0)
        free = {"a": "b", "b": "a"}[await world.node_of("low")]
        await add_grump(world, free, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await asyncio.sleep(600)
        status = (await world.scheduling("urgent")).status
        assert status.waiting_for == "EvictionForbidden"
        assert status.message.startswith(f"node {free}: viable, but refused by the scheduler. ")
        assert "No pod could be evicted for it: Parley's account lacks the right" in status.message

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_the_scheduler_refused_does_not_delay_evictions_elsewhere(play: Play) -> None:
    """Nodes that it refused are offered again after pauses of up to five minutes."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await world.add_pod("low", "one", schedulerName="asleep", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle(5)
        await add_grump(world, "b", priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await asyncio.sleep(BOUND_SECONDS / 2)
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        await world.client.create_subresource(PODS, "low", "binding", {"target": target}, "default")
        await asyncio.sleep(5)
        assert evicted == ["low"]
        await asyncio.sleep(60)
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_the_pause_between_evictions_for_a_pod_doubles() -> None:
    attempt, pauses = Attempt(Place(0, 0)), []
    for _ in range(8):
        attempt.evictions.begin(0.0)
        pauses.append(attempt.evictions.left(0.0))

    assert pauses == [60, 120, 240, 480, 960, 1920, 3840, 4800]
    assert attempt.evictions.left(5000.0) == 0


@pytest.mark.scheduling_paths("native")
def test_what_the_scheduler_refuses_a_preemptor_is_not_kept_for_it(play: Play) -> None:
    """Parley does not know what keeps the pod from the node. On the other one a pod of higher priority has all."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, high=20, low=0)
        node = await world.node_of("low")
        await add_grump(world, node, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle(30)
        assert evicted == ["low"]
        await world.add_pod("later", "one", priority=1)
        await asyncio.sleep(600)
        assert await world.node_of("urgent") == ""
        assert evicted == ["low", "later"]  # that one had it until the next try, after the preemptor's pause

    play(scenario)
