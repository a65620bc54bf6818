"""Reservation pods: the scheduler keeps ordinary pods out of what claims reserve, and lets their users in."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import NIGHT, borrower, claim, disks, task

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import Hold
from parley.api.resources import CLAIMS, NODES, PODS, SERVER_VERSION
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import ApiError, Client, Forbidden, NotFound, OutcomeUnknown, ServerError, TooManyRequests
from parley.kube.transport import Call
from parley.simulate.kube_scheduler import KubeScheduler

Play = Callable[[Callable[[World], Any]], None]

HOME = "parley-system"
"""Where reservation pods are made."""
KUBE_SCHEDULER = "default-scheduler"


async def begin(
    world: World,
    *nodes: str,
    hold: Hold = "Nominated",
    schedulers: Sequence[str] = (KUBE_SCHEDULER,),
    yields_to: Sequence[str] = (),
) -> None:
    await disks(world, *nodes, hold=hold, yields_to=yields_to)
    world.start_parley(drivers=[WorkspaceDriver()], reservation_schedulers=tuple(schedulers))


async def begun(world: World, **reserve: Any) -> None:
    """With the claim `build`, whose first task has ended."""
    await begin(world, "a")
    await after_first_task(world, **reserve)


async def after_first_task(world: World, **reserve: Any) -> None:
    await claim(world, "build", reserve)
    assert await task(world, "clone", "build") == "a"
    await world.finish_pod("clone")
    await world.settle()


async def ordinary(world: World, name: str, cpu: str = "2", **spec: Any) -> str:
    """A pod without claims, which Parley does not judge; its node, or ""."""
    return await task(world, name, cpu=cpu, schedulerName=KUBE_SCHEDULER, **spec)


async def held(world: World) -> dict[str, list[str]]:
    """What reservation pods hold: the CPU that each requests, by the node that it is nominated for."""
    found: dict[str, list[str]] = {}
    for pod in await reservation_pods(world):
        assert not pod.spec.node_name
        requests = pod.spec.containers[0].resources.requests
        found.setdefault(pod.status.nominated_node_name, []).append(str(requests.get("cpu", "")))
    return {node: sorted(amounts) for node, amounts in found.items()}


async def reservation_pods(world: World) -> Sequence[Pod]:
    return (await world.client.list(PODS, HOME)).items


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


def test_they_give_way_to_pods_that_the_claim_yields_to_and_hold_the_room_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        await after_first_task(world, cpu="6")
        assert [await ordinary(world, f"ordinary-{i}") for i in range(2)] == ["a", ""]
        assert await borrower(world, "borrower", cpu="4") == "a"
        assert await held(world) == {"a": ["2"]}
        assert await ordinary(world, "kept-out", cpu="1") == ""

        assert await task(world, "late", "build", cpu="4") == ""
        assert await held(world) == {"a": ["2"]}
        assert await ordinary(world, "kept-out-2", cpu="1") == ""

        for name in ("ordinary-1", "kept-out", "kept-out-2"):
            await world.delete_pod(name)
        await world.finish_pod("borrower")
        await asyncio.sleep(20)
        assert await world.node_of("late") == "a"
        assert await held(world) == {"a": ["2"]}
        assert await ordinary(world, "kept-out-3", cpu="1") == ""
        await world.finish_pod("late")
        await world.settle()
        assert await held(world) == {"a": ["6"]}

    play(scenario)


class SlowBindings(Client):
    """An API server that takes three seconds for a binding."""

    async def request(self, call: Call) -> bytes:
        if call.subresource == "binding":
            await asyncio.sleep(3)
        return await super().request(call)


@pytest.mark.scheduling_paths("extender")
def test_they_give_way_to_a_borrower_of_another_scheduler_whose_binding_takes_long(play: Play) -> None:
    """They do not keep it out, so it has the room from its binding on."""

    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated", yields_to=[NIGHT])
        client = SlowBindings(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await after_first_task(world, cpu="6")
        assert await borrower(world, "borrower", cpu="4") == "a"
        assert await held(world) == {"a": ["2"]}

    play(scenario)


def test_they_hold_the_room_again_when_a_borrower_could_not_be_placed(play: Play) -> None:
    """Something else that only the scheduler knows keeps it away."""

    async def scenario(world: World) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        await after_first_task(world, cpu="6")
        apart = {"labelSelector": {"matchLabels": {"app": "test"}}, "topologyKey": "kubernetes.io/hostname"}
        alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        assert await ordinary(world, "ordinary") == "a"
        assert await borrower(world, "borrower", cpu="4", affinity=alone) == ""
        await asyncio.sleep(30)
        await world.delete_pod("borrower")
        await world.settle()
        assert await held(world) == {"a": ["6"]}
        assert await ordinary(world, "kept-out", cpu="1") == ""

    play(scenario)


def test_a_preemptor_clears_the_nomination_and_it_is_made_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        (pod,) = await reservation_pods(world)
        body = {"status": {"nominatedNodeName": None}}
        await world.client.patch(PODS, pod.metadata.name, body, HOME, subresource="status")
        await world.settle()
        assert await held(world) == {"a": ["6"]}

    play(scenario)


def test_a_user_is_nominated_only_if_the_node_has_what_it_requests(play: Play) -> None:
    """Or anybody with a claim could hold a whole node with pods that never fit."""

    async def scenario(world: World) -> None:
        await begun(world, cpu="4")
        for i in range(5):
            assert await task(world, f"giant-{i}", "build", cpu="100") == ""
        assert await held(world) == {}
        nominated = [p.status.nominated_node_name for p in (await world.client.list(PODS, NAMESPACE)).items]
        assert not any(nominated)
        assert await ordinary(world, "ordinary", cpu="8") == "a"

    play(scenario)


def test_users_that_wait_take_no_more_than_what_is_reserved_together(play: Play) -> None:
    """Each is nominated as long as what is left for it suffices; node "a" has no room for any of them."""

    async def scenario(world: World) -> None:
        await begun(world, cpu="4", pods=10)
        await ordinary(world, "important", cpu="7", priority=1000)
        placed = [await task(world, f"task-{i}", "build", cpu="2") for i in range(4)]
        assert placed == [""] * 4
        pods = {
            p.metadata.name: p.status.nominated_node_name for p in (await world.client.list(PODS, NAMESPACE)).items
        }
        assert [pods[f"task-{i}"] for i in range(4)] == ["a", "a", "", ""]

    play(scenario)


def test_users_of_a_higher_priority_pass_by_themselves_and_what_they_leave_stays_held(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        assert [await ordinary(world, f"ordinary-{i}") for i in range(3)] == ["a", "", ""]
        for i in range(3):
            assert await task(world, f"late-{i}", "build", cpu="2", priority=1) == "a"
            assert (await world.pod(f"late-{i}")).status.nominated_node_name == ""
        assert await held(world) == {}

    play(scenario)


def test_a_pod_of_another_scheduler_has_its_room_until_it_is_bound(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, cpu="6")
        await task(world, "other", "build", cpu="6", schedulerName="nobody")
        assert await held(world) == {"a": ["6"]}

    play(scenario)


@pytest.mark.parametrize("enabled", [True, False])
def test_where_room_can_not_be_held_the_claim_says_so(play: Play, enabled: bool) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        schedulers = (KUBE_SCHEDULER,) if enabled else ()
        client = NoPods(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=schedulers)
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        why = (
            "the API server refused a reservation pod: not here" if enabled else "reservation pods are not enabled"
        )
        events = dict(await world.events_on("build"))
        assert f"Ordinary pods may take what it reserves on node a: {why}" in events[reasons.ROOM_NOT_HELD]

    play(scenario)


def test_a_quota_that_lets_no_further_pod_in_keeps_no_user_from_its_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = NoPods(world.server.client())
        client.quota = 2
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await after_first_task(world, cpu="6")
        assert await held(world) == {"a": ["6"]}
        assert await task(world, "late", "build", cpu="4") == "a"
        assert await held(world) == {}
        client.quota = 1
        await asyncio.sleep(120)
        assert await held(world) == {"a": ["2"]}

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [
        NotFound(404, "NotFound", 'namespaces "parley-system" not found'),
        ServerError(500, "InternalError", "failed calling webhook: connection refused"),
        TooManyRequests(429, "TooManyRequests", "slow down"),
        OutcomeUnknown("no answer within the 4 s that the lease leaves for a write"),
    ],
)
def test_a_user_gets_its_room_whatever_keeps_reservation_pods_from_being_made(
    play: Play, error: ApiError | OutcomeUnknown
) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = NoPods(world.server.client())
        client.error = error
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        told = reasons.ROOM_NOT_HELD in dict(await world.events_on("build"))
        assert told == isinstance(error, NotFound)
        client.quota = 10
        await asyncio.sleep(600)
        assert await held(world) == {"a": ["5"]}

    play(scenario)


def test_a_pod_that_could_not_be_deleted_is_deleted_later(play: Play) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        client = KeepsPods(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(KUBE_SCHEDULER,))
        await after_first_task(world, cpu="6")
        client.allowed = False
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await world.settle()
        assert await held(world) == {"a": ["6"]}
        client.allowed = True
        await asyncio.sleep(120)
        assert await held(world) == {}

    play(scenario)


class KeepsPods(Client):
    """An account that may not always delete pods."""

    allowed = True

    async def request(self, call: Call) -> bytes:
        if call.verb == "delete" and call.resource == PODS and not self.allowed:
            raise Forbidden(403, "Forbidden", "not now")
        return await super().request(call)


class NoPods(Client):
    """An account that may make no more than a few pods."""

    quota = 0
    error: ApiError | OutcomeUnknown = Forbidden(403, "Forbidden", "not here")

    async def request(self, call: Call) -> bytes:
        if call.verb == "create" and call.resource == PODS:
            if not self.quota:
                raise self.error
            self.quota -= 1
        return await super().request(call)
