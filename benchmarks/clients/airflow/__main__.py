"""Command line: a line of JSON for each run on stdout, then tables; everything else on stderr."""

import argparse
import asyncio
import signal
import sys
from random import Random

import msgspec

from benchmarks.clients.airflow import disturbances, kills, tables
from benchmarks.clients.airflow.runs import WAYS, Run, Took
from benchmarks.clients.airflow.sightings import Sightings, watching
from benchmarks.clients.airflow.stage import Stage, stage


def main() -> None:
    """Parse, then run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients.airflow", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each way, in turns; the first pair warms up")
    only = "only these, in place of all; `none` for none"
    parser.add_argument("--disturbance", action="append", choices=[*disturbances.NAMES, "none"], help=only)
    both = "so many times two runs with a claim at once, controller and node plugins killed meanwhile"
    parser.add_argument("--kills", type=int, default=0, help=both)
    parser.add_argument("--seed", type=int, default=1, help="of when the kills come")
    parser.add_argument("--patience", type=int, default=40, help="seconds that Airflow waits for a pod's node")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down then too
    names = [name for name in arguments.disturbance or disturbances.NAMES if name != "none"]
    with stage(arguments.patience) as ready:
        asyncio.run(_measure(ready, arguments, names))


async def _measure(ready: Stage, wanted: argparse.Namespace, names: list[str]) -> None:
    await asyncio.to_thread(ready.airflow.wait_for, [*WAYS, *disturbances.DAGS])
    async with watching(ready.cluster) as seen:
        took = await _in_turns(ready, seen, wanted.runs)
        if took:
            print(tables.side_by_side(took), flush=True)
        for name in names:
            for outcome in await disturbances.run(name, ready, seen):
                _say(outcome)
        for turn in range(wanted.kills):
            _say(await kills.two_at_once(ready, seen, Random(f"{wanted.seed} {turn}")))
        print(f"left on the nodes: {ready.left()}", flush=True)


async def _in_turns(ready: Stage, seen: Sightings, runs: int) -> list[Took]:
    took = []
    for number in range(runs):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            run = Run(ready, seen, way)
            await run.begin()
            one = await run.end()
            _say(one)
            if number > 0 or runs == 1:
                took.append(one)
    return took


def _say(result: msgspec.Struct) -> None:
    print(msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main()
