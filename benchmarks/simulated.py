"""What deciding costs while very many pods wait, in a simulated cluster: more than a real one here takes.

Parley's controller is the real one. Counted is the CPU time of its decisions alone, by samples of this process in
which one is being made: from looking at a pod to its next step, what the API server in memory does left out.
Waiting pods want a device that no node has: all the same one, so that they stand in one line, or so many
different ones (`wishes`), so that there is a line for each. Or they want more of a CPU than any node has, each
another amount. No scheduler is there: pods are bound where their claims were allocated.
"""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Self

import msgspec

from benchmarks import objects
from benchmarks.objects import DEVICE, NEVER, Ask, Body
from benchmarks.sampled import callers, sampling
from parley.api.resources import BUILTIN_CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES, TEMPLATES
from parley.control.objects.mirror import nodes_of
from parley.drivers.device import DeviceDriver
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller
from parley.scheduler.reconciler import Reconciler
from parley.simulate.claim_controller import ClaimController
from parley.simulate.cluster import loop_clock
from parley.simulate.virtual_time import run
from parley_devcluster.fake_nodes import ALLOCATABLE

NAME = "simulated-waiting"
_PODS = 400
_INTERVAL = 0.0005
_NAMESPACE = "default"
_API_SERVER = "parley/kube/memory"


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many pods that wait for so many different things: devices, or with `for_cpu` that.

    `apart`: the busy pods end one a second; else all at once.
    """

    waiting: int
    wishes: int = 1
    nodes: int = 100
    for_cpu: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        """As in the output."""
        wishes = f"-wishes-{self.wishes}" if self.wishes > 1 else ""
        return f"{NAME}-{self.waiting}{wishes}{'-for-cpu' if self.for_cpu else ''}"


CROWDS = (
    Crowd(0),
    Crowd(1_000),
    Crowd(10_000),
    Crowd(10_000, wishes=100),
    Crowd(300, wishes=300, nodes=500, apart=True),
    Crowd(300, wishes=300, nodes=500, for_cpu=True, apart=True),
)


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the output. CPU time of decisions, per pod that is bound or ends while others wait."""

    workload: str
    pods: int
    nodes: int
    waiting: int
    wishes: int
    decision_ms_per_pod: float
    end_of_life_decision_ms_per_pod: float
    of_empty: float | None = None
    """The time per pod that is bound, as a multiple of that without waiting pods."""


class Decisions:
    """Counts samples in which a scheduling path decides."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, _: int, frame: FrameType | None) -> None:
        """A handler for the timer's signal."""
        codes = list(callers(frame))
        written = any(_API_SERVER in code.co_filename for code in codes)
        self.taken += Reconciler.sync.__code__ in codes and not written

    def milliseconds(self) -> float:
        """CPU time since the last call."""
        taken, self.taken = self.taken, 0
        return 1000 * _INTERVAL * taken


def measure(crowd: Crowd, pods: int = _PODS) -> Result:
    """So many pods are bound, and then end, while the crowd waits. In virtual time."""
    return run(_measure(crowd, pods))


async def _measure(crowd: Crowd, pods: int) -> Result:
    decisions = Decisions()
    async with _Cluster() as cluster:
        await _furnish(cluster, crowd)
        with _undisturbed(), sampling(decisions.take, _INTERVAL):
            await cluster.create_pods("busy", [objects.pod(number, [DEVICE]) for number in range(pods)])
            await cluster.bind_all()
            bound = decisions.milliseconds()
            for number in range(pods):
                await cluster.end_pod(f"busy-{number}")
                if crowd.apart:
                    await asyncio.sleep(1)
            await cluster.settle()
            ended = decisions.milliseconds()
    return Result(
        workload=crowd.name,
        pods=pods,
        nodes=crowd.nodes,
        waiting=crowd.waiting,
        wishes=crowd.wishes,
        decision_ms_per_pod=round(bound / pods, 3),
        end_of_life_decision_ms_per_pod=round(ended / pods, 3),
    )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Garbage collections leave out what was there before: they would count for whoever sets them off."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class _Cluster:
    """Parley, and of Kubernetes an API server and what makes claims from templates. Runs within `async with`."""

    def __init__(self) -> None:
        clock = loop_clock()
        self._server = MemoryServer(clock=clock)
        self.client = self._server.client()
        self.controller = Controller(self.client, [DeviceDriver()], clock=clock)
        self._claims = ClaimController(self.client)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(part) for part in (self._claims.run(), self.controller.run())]
        await self.controller.ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.client.close()

    async def create_pods(self, prefix: str, pods: Sequence[Body]) -> None:
        """All of them; returns when nothing happens any more."""
        for number, body in enumerate(pods):
            await self.client.create(PODS, {**body, "metadata": {"name": f"{prefix}-{number}"}}, _NAMESPACE)
        await self.settle()

    async def bind_all(self) -> None:
        """Pods with an allocated claim are bound where it can be used, as the scheduler would."""
        for claim in (await self.client.list(BUILTIN_CLAIMS, _NAMESPACE)).items:
            if claim.status.allocation is not None:
                (user,), (node,) = claim.status.reserved_for, nodes_of(claim.status.allocation)
                target = {"target": {"kind": "Node", "name": node}}
                await self.client.create_subresource(PODS, user.name, "binding", target, _NAMESPACE)
        await self.settle()

    async def end_pod(self, name: str) -> None:
        """As its kubelet would: it is said to have ended before its object goes."""
        await self.client.patch(PODS, name, objects.FINISHED, _NAMESPACE, subresource="status")
        await self.client.delete(PODS, name, _NAMESPACE, grace_period_seconds=0)

    async def settle(self) -> None:
        """Return when nothing was written for a minute of the event loop's time. Raises what a part raised."""
        before = -1
        while self._server.resource_version != before:
            before = self._server.resource_version
            await asyncio.wait(self._tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()


async def _furnish(cluster: _Cluster, crowd: Crowd) -> None:
    for number in range(crowd.nodes):
        name = f"node-{number}"
        await cluster.client.create(NODES, {"metadata": {"name": name}, "status": {"allocatable": ALLOCATABLE}})
        await cluster.client.create(RESOURCE_SLICES, objects.resource_slice(name))
    wishes = [
        replace(NEVER, name=f"{NEVER.name}-{number}", parameters={"model": f"none-{number}"})
        for number in range(crowd.wishes)
    ]
    for ask in (DEVICE, *wishes):
        await cluster.client.create(CLASSES, objects.resource_class(ask))
        await cluster.client.create(TEMPLATES, objects.template(ask), _NAMESPACE)
    await cluster.create_pods("waiting", [_waiting(crowd, wishes, number) for number in range(crowd.waiting)])


def _waiting(crowd: Crowd, wishes: Sequence[Ask], number: int) -> Body:
    wish = number % crowd.wishes
    if not crowd.for_cpu:
        return objects.pod(number, [wishes[wish]])
    pod = objects.pod(number, [DEVICE])
    (container,) = pod["spec"]["containers"]
    requests = {"requests": {"cpu": str(1_000 + wish)}}
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "resources": requests}]}}


def results() -> Iterator[Result]:
    """Of one crowd after the other; the first is empty."""
    empty = 0.0
    for crowd in CROWDS:
        result = measure(crowd)
        empty = empty or result.decision_ms_per_pod
        yield msgspec.structs.replace(result, of_empty=round(result.decision_ms_per_pod / empty, 2))
