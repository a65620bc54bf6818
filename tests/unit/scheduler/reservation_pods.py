"""Claims that reserve room on one node, held by reservation pods; and what these hold."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.reserving import claim, disks, task

from parley.api.builtin import Pod
from parley.api.models import Hold
from parley.api.resources import PODS
from parley.drivers.workspace import WorkspaceDriver

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
