"""What a workload took: readings before, after it ran, and after it ended, and the line that they make.

A workload is over when every pod is bound and every PodScheduling is there; what the end of the pods' lives
costs is told apart.
"""

import asyncio

import msgspec

from benchmarks import usage, writes
from benchmarks.latency import percentile
from benchmarks.life import Life
from benchmarks.stage import OTHERS, Stage
from benchmarks.workloads import Workload
from parley.api.names import GROUP
from parley.api.resources import EVENTS

_SETTLE = 2.0
"""Seconds in which what the control plane does after the fact (events, statuses) comes to its end."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the benchmark's output. Times in seconds; writes are per pod."""

    workload: str
    pods: int
    nodes: int
    claims: int
    pods_per_second: float
    p50_s: float
    p99_s: float
    writes_per_pod: float
    controller_cpu_s: float
    controller_rss_mb: float
    cpu_ms_per_pod: float
    """Of everything measured together: this, unlike time, hardly depends on what else the machine does."""
    parley_writes_per_pod: float
    end_of_life_writes_per_pod: float
    complete_s: float
    """From the first creation until every PodScheduling was there too."""
    cpu_s: dict[str, float]
    others_cpu_s: float
    """Of all other processes of the machine in the same time."""
    writes: dict[str, float]
    end_of_life_writes: dict[str, float]
    of_plain: float | None = None
    """Pods per second as a share of those of plain pods on as many nodes in the same run."""


async def measure(stage: Stage, workload: Workload, *, first: bool) -> Result:
    """Run the workload to its end, before other work of the machine if `first`.

    Raises TimeoutError if it does not end.
    """
    life = Life(stage, workload)
    await life.prepare()
    await asyncio.sleep(_SETTLE)
    cpu_before, before = stage.cpu_seconds(), await _writes(stage)
    with stage.running_first(first):
        complete = await life.run()
    cpu = usage.spent(cpu_before, stage.cpu_seconds())
    others = cpu.pop(OTHERS)
    await asyncio.sleep(_SETTLE)
    ran, memory = await _writes(stage), usage.resident_megabytes(stage.controller)
    events = await _events_of_parley(stage, life.namespace)
    await life.end()
    await asyncio.sleep(_SETTLE)
    ended = await _writes(stage)
    await life.tidy_up()
    written, at_the_end = writes.since(before, ran), writes.since(ran, ended)
    latencies = life.times.latencies()
    return Result(
        workload=workload.name,
        pods=workload.pods,
        nodes=workload.nodes,
        claims=workload.claims,
        pods_per_second=life.times.pods_per_second(),
        p50_s=round(percentile(latencies, 0.5), 3),
        p99_s=round(percentile(latencies, 0.99), 3),
        writes_per_pod=writes.per_pod(written, workload.pods),
        controller_cpu_s=cpu[stage.controller.name],
        controller_rss_mb=memory,
        cpu_ms_per_pod=round(1000 * sum(cpu.values()) / workload.pods, 1),
        parley_writes_per_pod=writes.of_parley(written, events, workload.pods),
        end_of_life_writes_per_pod=writes.per_pod(at_the_end, workload.pods),
        complete_s=round(complete, 2),
        cpu_s=cpu,
        others_cpu_s=others,
        writes=writes.table(written, workload.pods),
        end_of_life_writes=writes.table(at_the_end, workload.pods),
    )


async def _writes(stage: Stage) -> dict[writes.Write, int]:
    return writes.parse((await stage.api.request("GET", "/metrics")).decode())


async def _events_of_parley(stage: Stage, namespace: str) -> int:
    events = (await stage.api.get(EVENTS.path(namespace)))["items"]
    return sum(1 for event in events if event.get("reportingController") == f"{GROUP}/controller")
