"""Our workloads and the peers by turns: one control plane at a time, so that nobody is measured beside another."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.measurement import Result, measure
from benchmarks.peer_run import Installed, install, run
from benchmarks.peers import PEERS, comparable
from benchmarks.stage import control_plane, stage
from benchmarks.turns import Turn
from benchmarks.workloads import WORKLOADS, Workload
from parley_devcluster.gobuild import BuildError

DEFAULT = ("claims1-100nodes", "extender-claims1")
"""The workloads that are compared with the peers if none is named."""


def chosen(names: Sequence[str]) -> Sequence[Workload]:
    """Those workloads. Raises ValueError unless the peers have a test case like them, the same for all."""
    workloads = [workload for workload in WORKLOADS if workload.name in names and comparable(workload)]
    unlike = [name for name in names if name not in {workload.name for workload in workloads}]
    if unlike:
        known = ", ".join(workload.name for workload in WORKLOADS if comparable(workload))
        raise ValueError(f"the peers have no test case like {', '.join(unlike)}: choose of {known}")
    if len({(workload.pods, workload.nodes) for workload in workloads}) > 1:
        raise ValueError(f"{', '.join(names)} differ in pods or nodes: compare them with the peers one by one")
    return workloads


def installed(names: Sequence[str]) -> list[Installed]:
    """Those that can be built here; of the others it tells why not. Raises BuildError if there are none."""
    ready: list[Installed] = []
    failures: list[BuildError] = []
    for peer in (peer for peer in PEERS if peer.name in names):
        try:
            ready.append(install(peer))
        except BuildError as error:
            failures.append(error)
            print(f"{peer.label} is left out, it cannot be built: {error}", file=sys.stderr, flush=True)
    if not ready:
        raise failures[0]
    return ready


def turns(
    workloads: Sequence[Workload], against: Sequence[Installed], rounds: int, *, first: bool
) -> Iterator[Turn]:
    """So many of each. Every other round runs in reverse order, so that nobody always comes after the same one."""
    for number in range(1, rounds + 1):
        ours = partial(_ours, workloads, number, first)
        theirs = [partial(_theirs, peer, workloads[0], number, first) for peer in against]
        for measured in [ours, *theirs][:: 1 if number % 2 else -1]:
            yield from measured()


def _ours(workloads: Sequence[Workload], number: int, first: bool) -> list[Turn]:
    """On a new control plane, as the peers have one, which is gone when this returns."""
    return [_turn(result, number) for result in asyncio.run(_measured(workloads, first))]


def _theirs(peer: Installed, like: Workload, number: int, first: bool) -> list[Turn]:
    return [run(peer, number, like.pods, like.nodes, first=first)]


async def _measured(workloads: Sequence[Workload], first: bool) -> list[Result]:
    with control_plane() as cluster:
        async with stage(cluster, None) as ready:
            return [await measure(ready, workload, first=first) for workload in workloads]


def _turn(result: Result, number: int) -> Turn:
    return Turn(
        way=result.workload,
        turn=number,
        pods=result.pods,
        nodes=result.nodes,
        pods_per_second=result.pods_per_second,
        cpu_ms_per_pod=result.cpu_ms_per_pod,
        others=round(result.others_cpu_s / (result.complete_s * (os.cpu_count() or 1)), 2),
    )
