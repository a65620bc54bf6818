"""Parley in a large cluster, on a real API server: 5,000 nodes, 40,000 devices, 20,000 running pods, 500 waiting.

First a burst of pods with a claim on 100 nodes and nothing else, for comparison; then the same burst in the large
cluster, what a change of the cluster costs the controller, how long a controller takes from its start to its first
decision, and how long a standby takes when the leader is killed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import msgspec

from benchmarks import filters, measurement, objects, population, usage
from benchmarks.objects import DEVICE, GPUS_PER_NODE
from benchmarks.stage import Stage
from benchmarks.workloads import Workload
from parley.api.resources import BUILTIN_TEMPLATES, CLASSES, NODES, PODS, RESOURCE_SLICES, TEMPLATES

NAME = "large-5000nodes"
SMALL = Workload("claims1-100nodes", nodes=100, pods=1000, asks=[DEVICE])
LARGE = Workload("claims1-5000nodes", nodes=5_000, pods=1000, asks=[DEVICE])

_CHANGES = 20
_NAMESPACE = "large-first"
_LIMIT = 120.0

Change = Callable[[int], Awaitable[object]]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output, beside those of the two bursts and of the extender's calls."""

    workload: str
    nodes: int
    running: int
    waiting: int
    cpu_of_small: float
    """The controller's CPU time a pod in the burst on 5,000 nodes, as a multiple of that on 100."""
    total_cpu_of_small: float
    """The same for all processes together."""
    change_cpu_ms: dict[str, float]
    """The controller's CPU time for one change of the cluster, until it is at rest again."""
    ready_s: float
    """From the start of a controller until it is ready."""
    first_decision_s: float
    """From the start of a controller until a pod that was waiting for one is bound."""
    failover_s: float
    """From the kill of the leader until a pod that was created in this moment is bound."""
    controller_rss_mb: float


async def measure(stage: Stage, *, first: bool) -> AsyncIterator[msgspec.Struct]:
    """Four results; the cluster should be empty. Raises TimeoutError if something does not come to its end."""
    small = await measurement.measure(stage, SMALL, first=first)
    yield small
    with stage.running_first(first):
        await stage.grow_to(LARGE.nodes, GPUS_PER_NODE)
        await population.run(stage)
        await population.wait(stage)
        await stage.at_rest()
    large = await measurement.measure(stage, LARGE, first=first)
    yield large
    memory = usage.resident_megabytes(stage.controller)
    with stage.running_first(first):
        changes = {name: await _cost(stage, change) for name, change in _changes(stage).items()}
    yield await filters.measure(stage, LARGE.nodes, first=first)
    with stage.running_first(first):
        ready, decided = await _start(stage)
        failover = await _fail_over(stage)
    yield Result(
        workload=NAME,
        nodes=LARGE.nodes,
        running=population.RUNNING,
        waiting=population.WAITING,
        cpu_of_small=round(large.controller_cpu_s / small.controller_cpu_s, 2),
        total_cpu_of_small=round(large.cpu_ms_per_pod / small.cpu_ms_per_pod, 2),
        change_cpu_ms=changes,
        ready_s=ready,
        first_decision_s=decided,
        failover_s=failover,
        controller_rss_mb=memory,
    )


def _changes(stage: Stage) -> dict[str, Change]:
    """Changes of the cluster, each for one of a few numbers; in this order."""
    request = stage.api.request
    nodes = stage.nodes[-_CHANGES:]
    path = partial(NODES.path, None)

    async def come(_: int) -> None:
        await stage.grow_to(len(stage.nodes) + 1, GPUS_PER_NODE)

    async def cordon(number: int) -> None:
        await request("PATCH", path(nodes[number]), {"spec": {"unschedulable": True}})

    async def uncordon(number: int) -> None:
        await request("PATCH", path(nodes[number]), {"spec": {"unschedulable": False}})

    async def go(_: int) -> None:
        node = stage.nodes.pop()
        await request("DELETE", path(node))
        await request("DELETE", RESOURCE_SLICES.path(None, f"{node}-devices"))

    async def change_class(number: int) -> None:
        prefer = "Spread" if number % 2 else "Pack"
        await request("PATCH", CLASSES.path(None, objects.NEVER.name), {"prefer": prefer})

    return {
        "a node comes": come,
        "a node is cordoned": cordon,
        "a node is uncordoned": uncordon,
        "a node goes": go,
        "the class of all waiting pods changes": change_class,
        "a pod with a claim ends": partial(population.end_running, stage),
        "a pod without a claim ends": lambda number: population.end_running(stage, population.CLAIMS + number),
    }


async def _cost(stage: Stage, change: Change) -> float:
    """The controller's CPU time in milliseconds for one change, judged by several."""
    await stage.at_rest()
    before = usage.cpu_seconds(stage.controller)
    for number in range(_CHANGES):
        await change(number)
    await stage.at_rest()
    return round(1000 * (usage.cpu_seconds(stage.controller) - before) / _CHANGES, 1)


async def _start(stage: Stage) -> tuple[float, float]:
    """Seconds from the start of a controller until it is ready, and until a pod that was there before is bound."""
    await stage.api.create_namespace(_NAMESPACE)
    await stage.api.request("POST", TEMPLATES.path(_NAMESPACE), objects.template(DEVICE))
    await stage.until(partial(stage.api.has, BUILTIN_TEMPLATES, _NAMESPACE, 1), "the template has a mirror")
    await asyncio.to_thread(stage.stop_parley)
    await _create(stage, 0)
    started = time.monotonic()
    await asyncio.to_thread(stage.start_parley)
    await stage.until(stage.answers, "the controller is ready", _LIMIT)
    ready = time.monotonic() - started
    await stage.until(partial(_bound, stage, 0), "the first pod is bound", _LIMIT)
    return round(ready, 1), round(time.monotonic() - started, 1)


async def _fail_over(stage: Stage) -> float:
    """Seconds from the kill of the leader until a standby has placed a pod."""
    await asyncio.to_thread(stage.start_standby)
    await asyncio.sleep(5.0)  # a standby reads everything before it leads
    killed = time.monotonic()
    await asyncio.to_thread(stage.kill_parley)
    await _create(stage, 1)
    await stage.until(partial(_bound, stage, 1), "the standby placed a pod", _LIMIT)
    return round(time.monotonic() - killed, 1)


async def _create(stage: Stage, number: int) -> None:
    await stage.api.request("POST", PODS.path(_NAMESPACE), objects.pod(number, [DEVICE]))


async def _bound(stage: Stage, number: int) -> bool:
    pod = await stage.api.get(PODS.path(_NAMESPACE, objects.pod_name(number)))
    return "nodeName" in pod["spec"]
