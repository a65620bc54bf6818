"""Reservation pods: the scheduler keeps ordinary pods out of what claims reserve, and lets their users in."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reservation_pods import (
    HOME,
    KUBE_SCHEDULER,
    Play,
    after_first_task,
    begin,
    begun,
    held,
    ordinary,
    reservation_pods,
)
from tests.unit.scheduler.reserving import claim, disks, task

from parley.api.resources import CLAIMS, NODES, PODS, SERVER_VERSION
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client
from parley.kube.transport import Call
from parley.simulate.kube_scheduler import KubeScheduler


def test_ordinary_pods_are_kept_out_and_the_late_big_task_fits(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        assert await held(world) == {"a": ["5"]}
        await world.finish_pod("clone")
        await world.settle()
        assert await held(world) == {"a": ["6"]}
        assert [await ordinary(world, f"ordinary-{i}") for i in range(3)] == ["a", "", ""]
        assert await held(world) == {"a": ["6"]}
        assert await task(world, "late", "build", cpu="6") == "a"
        assert await held(world) == {}
        await world.finish_pod("late")
        await world.settle()
        assert await held(world) == {"a": ["6"]}

    play(scenario)


def test_a_user_is_nominated_when_its_scheduler_has_tried_it_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", schedulers=("busy",))
        await after_first_task(world, cpu="6")
        await world.add_pod("late", claims=["build"], containers=requesting(cpu="6"), schedulerName="busy")
        await asyncio.sleep(0.5)
        assert (await world.pod("late")).status.nominated_node_name == ""
        assert await held(world) == {"a": ["6"]}
        tried = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
        await world.client.patch(PODS, "late", {"status": tried}, NAMESPACE, subresource="status")
        await asyncio.sleep(0.2)
        assert (await world.pod("late")).status.nominated_node_name == "a"

    play(scenario)


def test_pods_that_no_scheduler_tries_make_others_on_the_node_wait_one_second_once(play: Play) -> None:
    """kube-scheduler does not try a pod that names a claim which does not exist (`PreEnqueue`): anybody may make
    as many as find room."""

    async def scenario(world: World) -> None:
        await begin(world, "a", schedulers=(KUBE_SCHEDULER, "busy"))
        for name, cpu in (("theirs", "1"), ("build", "4")):
            await claim(world, name, {"cpu": cpu})
            assert await task(world, f"first-{name}", name, cpu="100m", schedulerName=KUBE_SCHEDULER) == "a"
            await world.finish_pod(f"first-{name}")
        await world.settle()
        for number in range(20):
            never = {"claims": ["theirs", "nothing"], "schedulerName": "busy"}
            await world.add_pod(f"never-{number}", containers=requesting(cpu="10m"), **never)
        await asyncio.sleep(0.5)
        await world.add_pod("late", claims=["build"], containers=requesting(cpu="4"), schedulerName=KUBE_SCHEDULER)
        await asyncio.sleep(4)
        assert await world.node_of("late") == "a"

        await world.finish_pod("late")
        await world.settle()
        requests = requesting(cpu="4")
        await world.add_pod("later", claims=["build"], containers=requests, schedulerName=KUBE_SCHEDULER)
        await asyncio.sleep(0.5)
        assert await world.node_of("later") == "a"

    play(scenario)


def test_with_ledger_ordinary_pods_take_the_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", hold="Ledger")
        await claim(world, "build", {"cpu": "6"})
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        assert [await ordinary(world, f"ordinary-{i}") for i in range(3)] == ["a"] * 3
        assert await held(world) == {}

    play(scenario)


OLDER = "older"
"""A kube-scheduler of Kubernetes 1.36."""


class PriorityClasses(Client):
    """Gives pods the preemption policy of their priority class "never", as the API server does."""

    async def request(self, call: Call) -> bytes:
        if call.verb == "create" and call.resource.plural == "pods" and call.body is not None:
            spec = call.body["spec"]
            if spec.get("priorityClassName") == "never":
                call = replace(call, body={**call.body, "spec": {**spec, "preemptionPolicy": "Never"}})
        return await super().request(call)


@pytest.mark.parametrize(
    ("version", "priority_class", "kept_out"),
    [("v1.36.3", "never", True), ("v1.36.3", "", False), ("v1.37.0", "never", False), (None, "never", False)],
    ids=["without gates", "whose nomination is dropped", "with gates", "with gates as nobody knows the version"],
)
def test_over_a_restart_a_kube_scheduler_of_1_36_counts_those_that_are_not_gated(
    play: Play, version: str | None, priority_class: str, kept_out: bool
) -> None:
    """It is judged by what it does before the controller could mend anything."""

    async def scenario(world: World) -> None:
        if version is not None:
            await world.create(SERVER_VERSION, {"metadata": {"name": "version"}, "gitVersion": version})
        await disks(world, "a", hold="Nominated")
        world.start_parley(
            PriorityClasses(world.server.client()),
            [WorkspaceDriver()],
            reservation_schedulers=(OLDER,),
            reservation_priority=priority_class,
        )
        scheduler = asyncio.create_task(older(world).run())
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build", schedulerName=OLDER) == "a"
        await world.finish_pod("clone")
        await world.settle()
        assert await held(world) == {"a": ["6"]}
        assert [await task(world, f"before-{i}", cpu="2", schedulerName=OLDER) for i in range(2)] == ["a", ""]

        await world.crash()
        scheduler.cancel()
        scheduler = asyncio.create_task(older(world).run())
        await world.settle()
        assert await world.node_of("before-1") == ("" if kept_out else "a")
        scheduler.cancel()

    play(scenario)


def older(world: World) -> KubeScheduler:
    return KubeScheduler(world.server.client(), world.clock, OLDER, older=True)


def test_a_pod_of_higher_priority_passes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="7")
        assert await ordinary(world, "ordinary") == ""
        assert await ordinary(world, "important", priority=1000) == "a"
        assert await held(world) == {"a": ["7"]}

    play(scenario)


def test_pod_slots_are_held_by_one_pod_each(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.client.patch(
            NODES,
            "a",
            {"status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "4"}}},
            subresource="status",
        )
        await claim(world, "build", {"cpu": "2", "pods": 3})
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        await world.settle()
        assert await held(world) == {"a": ["", "", "2"]}
        assert [await ordinary(world, f"ordinary-{i}", cpu="1") for i in range(2)] == ["a", ""]
        await world.delete_pod("ordinary-1")
        assert [await task(world, f"late-{i}", "build", cpu="500m") for i in range(3)] == ["a"] * 3
        assert await held(world) == {}  # no pod slot is left that somebody could use the other 500m with

    play(scenario)


def test_nothing_is_left_when_the_claim_has_ended(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        assert await ordinary(world, "ordinary", cpu="4") == ""
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await asyncio.sleep(20)
        assert await held(world) == {}
        assert await world.node_of("ordinary") == "a"

    play(scenario)


@pytest.mark.parametrize(
    "while_away", ["nothing", "the claim's end", "a nomination that is cleared", "a pod that is deleted"]
)
def test_a_new_controller_goes_on_where_the_former_one_was(play: Play, while_away: str) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        await world.crash()
        (pod,) = await reservation_pods(world)
        match while_away:
            case "the claim's end":
                body = {"metadata": {"finalizers": None}}
                await world.client.patch(CLAIMS, "build", body, NAMESPACE)
                await world.client.delete(CLAIMS, "build", NAMESPACE)
            case "a nomination that is cleared":
                body = {"status": {"nominatedNodeName": None}}
                await world.client.patch(PODS, pod.metadata.name, body, HOME, subresource="status")
            case "a pod that is deleted":
                await world.client.delete(PODS, pod.metadata.name, HOME)
        world.start_parley(drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await asyncio.sleep(30)
        assert await held(world) == ({} if while_away == "the claim's end" else {"a": ["6"]})

    play(scenario)


def test_a_new_controller_with_another_priority_class_replaces_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        await world.crash()
        world.start_parley(
            drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,), reservation_priority="high"
        )
        await asyncio.sleep(30)
        pods = (await world.client.list(PODS.untyped(), HOME)).items
        assert [pod["spec"].get("priorityClassName") for pod in pods] == ["high"]
        assert await held(world) == {"a": ["6"]}

    play(scenario)
