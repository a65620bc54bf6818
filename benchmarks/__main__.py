"""Command line: one JSON line per workload on stdout, everything else on stderr."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from benchmarks.measurement import measure
from benchmarks.stage import control_plane, stage
from benchmarks.workloads import Workload, chosen
from parley.devcluster import Cluster


def main() -> None:
    """Parse, then run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", metavar="NAME", action="append", help="only this one; can be repeated")
    profiling = "sample where the controller's CPU time goes; FILE gets the profile, and it is printed"
    parser.add_argument("--profile", metavar="FILE", type=Path, help=profiling)
    first = "let what is measured run before other work of this machine (root only); for machines that are shared"
    parser.add_argument("--first", action="store_true", help=first)
    arguments = parser.parse_args()
    try:
        wanted = [workload for name in arguments.workload or [None] for workload in chosen(name)]
    except ValueError as error:
        parser.error(str(error))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down then too
    with control_plane() as cluster:
        asyncio.run(_run(cluster, wanted, arguments.profile, arguments.first))
    if arguments.profile:
        print(arguments.profile.read_text(), file=sys.stderr)


async def _run(cluster: Cluster, wanted: Sequence[Workload], profile: Path | None, first: bool) -> None:
    plain: dict[int, float] = {}
    async with stage(cluster, profile) as ready:
        for workload in wanted:
            result = await measure(ready, workload, first=first)
            if not workload.claims:
                plain[workload.nodes] = result.pods_per_second
            elif workload.nodes in plain and not workload.one_by_one:
                share = result.pods_per_second / plain[workload.nodes]
                result = msgspec.structs.replace(result, of_plain=round(share, 2))
            print(msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main()
