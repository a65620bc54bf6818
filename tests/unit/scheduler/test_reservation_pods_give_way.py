"""When reservation pods give way, to borrowers, users and preemptors, and hold the room again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
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
from tests.unit.scheduler.reserving import NIGHT, borrower, disks, task

from parley.api.resources import NODES, PODS
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client
from parley.kube.transport import Call
from parley.simulate.kube_scheduler import KubeScheduler


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


async def pod_ends(world: World) -> None:
    await world.finish_pod("plain")


async def node_grows(world: World) -> None:
    allocatable = {"cpu": "10", "memory": "16Gi", "pods": "30"}
    await world.client.patch(NODES, "a", {"status": {"allocatable": allocatable}}, subresource="status")


@pytest.mark.parametrize("room_is_made", [pod_ends, node_grows])
def test_they_give_way_to_a_user_as_soon_as_the_node_has_what_it_requests_beside_them(
    play: Play, room_is_made: Callable[[World], Awaitable[None]]
) -> None:
    """It lacked that when its scheduler tried it first."""

    async def scenario(world: World) -> None:
        await begin(world, "a", yields_to=[NIGHT], schedulers=("late",))
        await after_first_task(world, cpu="4")
        assert await borrower(world, "borrower", cpu="1") == "a"
        await task(world, "user", "build", cpu="6", schedulerName="late")
        await task(world, "plain", cpu="2", nodeName="a", schedulerName="")
        scheduler = asyncio.create_task(KubeScheduler(world.server.client(), world.clock, "late").run())
        await asyncio.sleep(20)
        assert await held(world) == {"a": ["3"]}
        await room_is_made(world)
        await asyncio.sleep(20)
        assert await world.node_of("user") == "a"
        scheduler.cancel()

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
