"""What deciding costs while very many pods wait, in a simulated cluster: more than a real one here takes.

Parley's controller is the real one. Counted is the CPU time of its decisions alone, by samples of this process in
which one is being made: from looking at a pod to its next step, what the API server in memory does left out.
Waiting pods want a device that no node has: all the same one, so that they stand in one line, or so many
different ones (`wishes`), so that each line is looked at whenever a device becomes free.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

import msgspec

from benchmarks import objects
from benchmarks.objects import DEVICE, NEVER, Ask
from benchmarks.sampled import callers, sampling
from parley.api.resources import CLASSES, NODES, PODS, RESOURCE_SLICES, TEMPLATES
from parley.scheduler.native.door import NativeDoor
from parley.simulate.cluster import SimulatedCluster
from parley.simulate.virtual_time import run

NAME = "simulated-waiting"
_NODES = 100
_PODS = 400
_INTERVAL = 0.0005
_NAMESPACE = "default"
_APART = ("parley/kube/memory", "parley/simulate")
"""Stands for the API server and the rest of the control plane."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many pods that wait for so many different things."""

    waiting: int
    wishes: int = 1

    @property
    def name(self) -> str:
        """As in the output."""
        return f"{NAME}-{self.waiting}" + (f"-wishes-{self.wishes}" if self.wishes > 1 else "")


CROWDS = (Crowd(0), Crowd(1_000), Crowd(10_000), Crowd(10_000, wishes=100))


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
    """Counts samples in which the door decides."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, _: int, frame: FrameType | None) -> None:
        """A handler for the timer's signal."""
        codes = list(callers(frame))
        apart = any(place in code.co_filename for code in codes for place in _APART if code.co_name != "run")
        self.taken += NativeDoor.sync.__code__ in codes and not apart

    def milliseconds(self) -> float:
        """CPU time since the last call."""
        taken, self.taken = self.taken, 0
        return 1000 * _INTERVAL * taken


def measure(crowd: Crowd, pods: int = _PODS) -> Result:
    """So many pods are bound, and then end, while the crowd waits. In virtual time."""
    return run(_measure(crowd, pods))


async def _measure(crowd: Crowd, pods: int) -> Result:
    decisions = Decisions()
    async with SimulatedCluster() as cluster:
        await _furnish(cluster, crowd)
        with _undisturbed(), sampling(decisions.take, _INTERVAL):
            await _create(cluster, "busy", [[DEVICE]] * pods)
            bound = decisions.milliseconds()
            for number in range(pods):
                await cluster.client.delete(PODS, f"busy-{number}", _NAMESPACE, grace_period_seconds=0)
            await cluster.settle()
            ended = decisions.milliseconds()
    return Result(
        workload=crowd.name,
        pods=pods,
        nodes=_NODES,
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


async def _furnish(cluster: SimulatedCluster, crowd: Crowd) -> None:
    await cluster.controller.ready.wait()
    for number in range(_NODES):
        name = f"node-{number}"
        node = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
        }
        await cluster.client.create(NODES, node)
        await cluster.client.create(RESOURCE_SLICES, objects.resource_slice(name))
    wishes = [_wish(number) for number in range(crowd.wishes)]
    for ask in (DEVICE, *wishes):
        await cluster.client.create(CLASSES, objects.resource_class(ask))
        await cluster.client.create(TEMPLATES, objects.template(ask), _NAMESPACE)
    await _create(cluster, "waiting", [[wishes[number % crowd.wishes]] for number in range(crowd.waiting)])


def _wish(number: int) -> Ask:
    return replace(
        NEVER, name=f"{NEVER.name}-{number}", parameters={**NEVER.parameters, "model": f"none-{number}"}
    )


async def _create(cluster: SimulatedCluster, prefix: str, asks: Sequence[Sequence[Ask]]) -> None:
    for number, of_pod in enumerate(asks):
        body = objects.pod(number, of_pod)
        await cluster.client.create(PODS, {**body, "metadata": {"name": f"{prefix}-{number}"}}, _NAMESPACE)
    await cluster.settle()


def results() -> Iterator[Result]:
    """Of one crowd after the other; the first is empty."""
    empty = 0.0
    for crowd in CROWDS:
        result = measure(crowd)
        empty = empty or result.decision_ms_per_pod
        yield msgspec.structs.replace(result, of_empty=round(result.decision_ms_per_pod / empty, 2))
