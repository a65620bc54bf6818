"""How much memory the controller takes in a large cluster: 5,000 nodes with devices, 20,000 pods, 5,000 claims.

The objects are in a real API server.
"""

import asyncio
import time

import msgspec

from benchmarks import population, usage
from benchmarks.objects import GPUS_PER_NODE
from benchmarks.stage import Stage

NAME = "memory-5000nodes"
_NODES = 5_000
_QUIET = 10.0
"""Seconds after which a controller that found everything there has nothing to do any more."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output, in MB of resident memory. `empty_mb` before anything was there, `grown_mb` of the
    controller that saw everything come, `restarted_mb` of another one that found it there, and `restarted_peak_mb`
    the most that this one had until then."""

    workload: str
    nodes: int
    devices: int
    pods: int
    claims: int
    empty_mb: float
    nodes_mb: float
    grown_mb: float
    restarted_mb: float
    restarted_peak_mb: float
    seconds: float


async def measure(stage: Stage, *, first: bool) -> Result:
    """Fill the cluster, which should be empty. Raises TimeoutError if that does not come to its end."""
    started = time.monotonic()
    empty = usage.resident_megabytes(stage.controller)
    with stage.running_first(first):
        await stage.grow_to(_NODES, GPUS_PER_NODE)
        await asyncio.sleep(_QUIET)
        nodes = usage.resident_megabytes(stage.controller)
        await population.run(stage)
        await asyncio.sleep(_QUIET)
    grown = usage.resident_megabytes(stage.controller)
    await stage.restart_parley()
    await asyncio.sleep(3 * _QUIET)
    stage.check_alive()
    return Result(
        workload=NAME,
        nodes=_NODES,
        devices=_NODES * GPUS_PER_NODE,
        pods=population.RUNNING,
        claims=population.CLAIMS,
        empty_mb=empty,
        nodes_mb=nodes,
        grown_mb=grown,
        restarted_mb=usage.resident_megabytes(stage.controller),
        restarted_peak_mb=usage.peak_megabytes(stage.controller),
        seconds=round(time.monotonic() - started, 1),
    )
