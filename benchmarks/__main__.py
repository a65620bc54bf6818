"""Command line: one JSON line per workload on stdout, everything else on stderr."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from benchmarks import (
    by_turns,
    device_search,
    filters,
    large_cluster,
    memory,
    node_plugin,
    simulated,
    turns,
    unrelated,
)
from benchmarks.measurement import Result, compared, measure
from benchmarks.peers import PEERS
from benchmarks.stage import control_plane, stage
from benchmarks.workloads import WORKLOADS, Workload

_KNOWN = (
    *(workload.name for workload in WORKLOADS),
    unrelated.NAME,
    filters.NAME,
    simulated.NAME,
    device_search.NAME,
    memory.NAME,
    large_cluster.NAME,
    node_plugin.NAME,
)
_PEERS = tuple(peer.name for peer in PEERS)


def main() -> None:
    """Parse, then run."""
    parser = _parser()
    arguments = parser.parse_args()
    workloads: Sequence[Workload] = ()
    if arguments.peers is not None:
        try:
            workloads = _compared_with_peers(arguments)
        except ValueError as error:
            parser.error(str(error))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down then too
    if workloads:
        _run_peers(workloads, arguments.peers or _PEERS, arguments.rounds, arguments.first)
        return
    other = arguments.against.resolve() if arguments.against else None
    _run(arguments.workload or _KNOWN, arguments.profile, arguments.first, other)
    if arguments.profile:
        print(arguments.profile.read_text(), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--workload", metavar="NAME", action="append", choices=_KNOWN, help="only this one; can be repeated"
    )
    profiling = (
        "sample where the CPU time of controller or node plugin goes; FILE gets the profile, and it is printed"
    )
    parser.add_argument("--profile", metavar="FILE", type=Path, help=profiling)
    first = "let what is measured run before other work of this machine (root only); for machines that are shared"
    parser.add_argument("--first", action="store_true", help=first)
    against = "also measure the node plugin, or controllers, of another checkout by turns"
    parser.add_argument("--against", metavar="FOLDER", type=Path, help=against)
    peers = (
        "compare with Kubernetes' own benchmark, scheduler_perf, by turns: structured (of today), classic, or both"
    )
    parser.add_argument("--peers", metavar="NAME", nargs="*", choices=_PEERS, help=peers)
    rounds = "with --peers: so many turns of each"
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help=rounds)
    return parser


def _compared_with_peers(arguments: argparse.Namespace) -> Sequence[Workload]:
    """The workloads to compare. Raises ValueError where the options don't go together."""
    if arguments.against or arguments.profile:
        raise ValueError("--peers measures this checkout without a profile: leave out --against and --profile")
    if arguments.rounds < 1:
        raise ValueError(f"--rounds {arguments.rounds}: at least one turn is needed")
    return by_turns.chosen(arguments.workload or by_turns.DEFAULT)


def _run(names: Sequence[str], profile: Path | None, first: bool, against: Path | None) -> None:
    """Those on a real control plane share it; that of the memory is its own, and so is the node plugin's."""
    if any(workload.name in names for workload in WORKLOADS):
        asyncio.run(_run_workloads(names, profile, first, against))
    if unrelated.NAME in names or filters.NAME in names:
        asyncio.run(_run_extender(names, profile, first))
    if simulated.NAME in names:
        for result in simulated.results():
            _say(result)
    if device_search.NAME in names:
        for found in device_search.results():
            _say(found)
    if memory.NAME in names:
        asyncio.run(_run_memory(first))
    if large_cluster.NAME in names:
        asyncio.run(_run_large_cluster(first, profile))
    if node_plugin.NAME in names:
        asyncio.run(_run_node_plugin(against, profile, first))


async def _run_workloads(names: Sequence[str], profile: Path | None, first: bool, against: Path | None) -> None:
    results: dict[str, Result] = {}
    with control_plane() as cluster:
        async with stage(cluster, profile) as ready:
            for workload in (workload for workload in WORKLOADS if workload.name in names):
                if against is not None:
                    await ready.take(against)
                    other = await measure(ready, workload, first=first)
                    _say(msgspec.structs.replace(other, checkout=str(against)))
                    await ready.take(None)
                result = compared(workload, await measure(ready, workload, first=first), results)
                results[workload.name] = result
                _say(result)


async def _run_extender(names: Sequence[str], profile: Path | None, first: bool) -> None:
    """What is measured of the extender but pods per second; filters last, as nodes are only ever added."""
    with control_plane() as cluster:
        async with stage(cluster, profile) as ready:
            if unrelated.NAME in names:
                _say(await unrelated.measure(ready, first=first))
            if filters.NAME in names:
                for nodes in filters.SIZES:
                    _say(await filters.measure(ready, nodes, first=first))


async def _run_memory(first: bool) -> None:
    with control_plane() as cluster:
        async with stage(cluster, None) as ready:
            _say(await memory.measure(ready, first=first))


async def _run_large_cluster(first: bool, profile: Path | None) -> None:
    with control_plane() as cluster:
        async with stage(cluster, profile) as ready:
            async for result in large_cluster.measure(ready, first=first):
                _say(result)


async def _run_node_plugin(against: Path | None, profile: Path | None, first: bool) -> None:
    with control_plane() as cluster:
        for result in await node_plugin.measure(cluster, against, profile, first=first):
            _say(result)


def _run_peers(workloads: Sequence[Workload], peers: Sequence[str], rounds: int, first: bool) -> None:
    """A line of JSON for each turn; the table follows when all of them are over."""
    against = by_turns.installed(peers)
    measured: list[turns.Turn] = []
    for turn in by_turns.turns(workloads, against, rounds, first=first):
        measured.append(turn)
        _say(turn)
    print(turns.table(measured, [ready.peer.label for ready in against]), file=sys.stderr)


def _say(result: msgspec.Struct) -> None:
    print(msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main()
