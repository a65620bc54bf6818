"""Room that is handed over to a pod that its busy scheduler has yet to try: a first attempt that fails ends a
nomination, and ordinary pods would take the room."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers import requesting, using
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import NIGHT, claim, disks, task

from parley.api.resources import CLAIMS, PODS, Resource
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client
from parley.kube.transport import Call
from parley.simulate.kube_scheduler import KubeScheduler

Play = Callable[[Callable[[World], Any]], None]

BUSY = "busy"
"""A scheduler that tries the pod `late` at the worst moment."""


class BusyWith(Client):
    """Its attempt at the pod `first` takes until the pod `late` is nominated, or far longer than Parley waits."""

    world: World

    async def request(self, call: Call) -> bytes:
        if call.verb == "patch" and call.name == "first":
            for _ in range(100):
                if await self._is_nominated():
                    break
                await asyncio.sleep(0.05)
        return await super().request(call)

    async def _is_nominated(self) -> bool:
        pods = (await self.world.client.list(PODS, NAMESPACE)).items
        return any(pod.metadata.name == "late" and pod.status.nominated_node_name for pod in pods)


class SlowDeletions(Client):
    """An API server that takes its time for deletions."""

    async def request(self, call: Call) -> bytes:
        if call.verb == "delete" and call.resource == PODS:
            await asyncio.sleep(1)
        return await super().request(call)


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"]], ids=["one node", "and one without the claim"])
def test_ordinary_pods_do_not_get_it(play: Play, nodes: list[str]) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated")
        for name in nodes[1:]:
            await world.add_node(name)
        client = SlowDeletions(world.server.client())
        world.start_parley(client, drivers=[WorkspaceDriver()], reservation_schedulers=(BUSY,))
        busy = BusyWith(world.server.client())
        busy.world = world
        scheduler = asyncio.create_task(KubeScheduler(busy, world.clock, BUSY).run())
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build", schedulerName=BUSY) == "a"
        await world.finish_pod("clone")
        await world.settle()
        for number in range(8):
            await task(world, f"ordinary-{number}", cpu="2", schedulerName=BUSY)
        assert await world.node_of("ordinary-7") == ""

        await world.add_pod("first", containers=requesting(cpu="100"), schedulerName=BUSY)
        await world.add_pod("late", claims=["build"], containers=requesting(cpu="6"), schedulerName=BUSY)
        await world.settle()
        assert await world.node_of("late") == "a"
        scheduler.cancel()

    play(scenario)


@pytest.mark.parametrize("name", ["build", "borrower"], ids=["a user", "a borrower"])
def test_one_gets_it_that_is_tried_long_after_it_was_there(play: Play, name: str) -> None:
    """Its scheduler was restarted meanwhile. Borrowers use a claim that the room yields to."""

    async def scenario(world: World) -> None:
        await disks(world, "a", hold="Nominated", yields_to=[NIGHT])
        world.start_parley(drivers=[WorkspaceDriver()], reservation_schedulers=(BUSY,))
        scheduler = asyncio.create_task(KubeScheduler(world.client, world.clock, BUSY).run())
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build", schedulerName=BUSY) == "a"
        await world.finish_pod("clone")
        await world.settle()
        scheduler.cancel()

        await world.add_claim("borrower", NIGHT, size="1Mi")
        await world.add_pod("late", claims=[name], containers=requesting(cpu="4"), schedulerName=BUSY)
        await asyncio.sleep(10)
        scheduler = asyncio.create_task(KubeScheduler(world.client, world.clock, BUSY).run())
        await asyncio.sleep(30)
        assert await world.node_of("late") == "a"
        scheduler.cancel()

    play(scenario)


def test_pods_that_are_never_tried_keep_no_others_waiting(play: Play) -> None:
    """A tenant creates more of them all the time, or their scheduler is too busy. Each is waited for by itself."""

    async def scenario(world: World) -> None:
        await disks(world, "a", "b", hold="Nominated", yields_to=[NIGHT])
        world.start_parley(drivers=[WorkspaceDriver()], reservation_schedulers=(BUSY,))
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        for number in range(30):
            await new(world, number)
        others = [f"other-{number}" for number in range(20)]
        for name in others:
            await create(world, CLAIMS, name, {"resourceClassName": NIGHT, "parameters": {"size": "1Mi"}})
            entries = [{"name": "mine", "resourceClaimName": name}]
            pod = {"resourceClaims": entries, "containers": using(requesting(cpu="10m"), entries)}
            await create(world, PODS, name, pod)
        for number in range(30, 90):
            await new(world, number)
        assert all([(await world.client.get(PODS, name, "other")).spec.node_name for name in others])

    play(scenario)


async def create(world: World, resource: Resource[Any], name: str, spec: dict[str, Any]) -> None:
    """An object in another namespace."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    await world.client.create(resource, {**kind, "metadata": {"name": name}, "spec": spec}, "other")


async def new(world: World, number: int) -> None:
    """A pod that uses the room and that no scheduler tries; twenty of them are created in a second."""
    name, cpu = f"new-{number}", requesting(cpu="10m")
    await world.add_pod(name, claims=["build"], containers=cpu, schedulerName=BUSY)
    await asyncio.sleep(0.05)
