"""What a workload took: readings before, after it ran, and after it ended, and the line that they make.

A workload is over when every pod is bound and every PodScheduling is there; what the end of the pods' lives
costs is told apart.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from benchmarks import accounts, usage, writes
from benchmarks.latency import percentile
from benchmarks.life import Life
from benchmarks.stage import DRIVER, OTHERS, Stage
from benchmarks.workloads import Workload
from parley_devcluster.parley import CONTROLLER

_SETTLE = 2.0
"""When nothing was written for so many seconds, what is done after the fact (events, statuses) is at its end."""

_PATIENCE = 10
"""So many times it is looked whether something was written; then it is none of the workload's."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the benchmark's output. Times in seconds; writes are per pod."""

    workload: str
    checkout: str = ""
    """Whose controller it was, if not this one's."""
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
    """Of the controller; `driver_writes_per_pod` are those of the standalone driver of it."""
    driver_writes_per_pod: float = 0.0
    end_of_life_writes_per_pod: float
    end_of_life_parley_writes_per_pod: float
    end_of_life_driver_writes_per_pod: float = 0.0
    end_of_life_controller_cpu_s: float
    complete_s: float
    """From the first creation until every PodScheduling was there too."""
    cpu_s: dict[str, float]
    others_cpu_s: float
    """Of all other processes of the machine in the same time."""
    writes: dict[str, float]
    end_of_life_writes: dict[str, float]
    of_plain: float | None = None
    """Pods per second as a share of those of plain pods on as many nodes in the same run."""
    of_empty: float | None = None
    """As a share of those of the same pods where nobody waits and nothing is taken."""


class _Reading(msgspec.Struct, frozen=True):
    """All counters of a moment."""

    writes: dict[writes.Write, int]
    parley: int
    driver: int
    cpu: dict[str, float]


async def measure(stage: Stage, workload: Workload, *, first: bool) -> Result:
    """Run the workload to its end, before other work of the machine if `first`.

    Raises TimeoutError if it does not end.
    """
    life = Life(stage, workload)
    await life.prepare()
    with stage.running_first(first):
        result = await _live(stage, workload, life)
    await life.tidy_up()
    return result


async def _live(stage: Stage, workload: Workload, life: Life) -> Result:
    before = await _read_at_rest(stage)
    complete = await life.run()
    cpu = usage.spent(before.cpu, stage.cpu_seconds())
    others = cpu.pop(OTHERS)
    ran, memory = await _read_at_rest(stage), usage.resident_megabytes(stage.controller)
    await life.end()
    ended = await _read_at_rest(stage)
    written, at_the_end = writes.since(before.writes, ran.writes), writes.since(ran.writes, ended.writes)
    latencies = life.times.latencies()
    return Result(
        workload=workload.name,
        pods=workload.pods,
        nodes=workload.nodes,
        claims=len(workload.asks),
        pods_per_second=life.times.pods_per_second(),
        p50_s=round(percentile(latencies, 0.5), 3),
        p99_s=round(percentile(latencies, 0.99), 3),
        writes_per_pod=writes.per_pod(written, workload.pods),
        controller_cpu_s=cpu[CONTROLLER],
        controller_rss_mb=memory,
        cpu_ms_per_pod=round(1000 * sum(cpu.values()) / workload.pods, 1),
        parley_writes_per_pod=round((ran.parley - before.parley) / workload.pods, 2),
        driver_writes_per_pod=round((ran.driver - before.driver) / workload.pods, 2),
        end_of_life_writes_per_pod=writes.per_pod(at_the_end, workload.pods),
        end_of_life_parley_writes_per_pod=round((ended.parley - ran.parley) / workload.pods, 2),
        end_of_life_driver_writes_per_pod=round((ended.driver - ran.driver) / workload.pods, 2),
        end_of_life_controller_cpu_s=usage.spent(ran.cpu, ended.cpu)[CONTROLLER],
        complete_s=round(complete, 2),
        cpu_s=cpu,
        others_cpu_s=others,
        writes=writes.table(written, workload.pods),
        end_of_life_writes=writes.table(at_the_end, workload.pods),
    )


def compared(workload: Workload, result: Result, earlier: Mapping[str, Result]) -> Result:
    """The result as a share of those that the workload is compared with, as far as they are there."""

    def share(name: str) -> float | None:
        known = earlier.get(name)
        return round(result.pods_per_second / known.pods_per_second, 2) if known is not None else None

    return msgspec.structs.replace(result, of_plain=share(workload.plain), of_empty=share(workload.empty))


async def _read_at_rest(stage: Stage) -> _Reading:
    reading = await _read(stage)
    for _ in range(_PATIENCE):
        before = reading
        await asyncio.sleep(_SETTLE)
        reading = await _read(stage)
        if reading.writes == before.writes:
            break
    return reading


async def _read(stage: Stage) -> _Reading:
    metrics = (await stage.api.request("GET", "/metrics")).decode()
    parley, driver = accounts.written(metrics, CONTROLLER), accounts.written(metrics, DRIVER)
    return _Reading(writes.parse(metrics), parley, driver, stage.cpu_seconds())
