"""Two runs with a claim each, at once, and kills of the controller and the node plugins: each has its own files.

Every task looks for its own run's mark in its directory, and fails where it finds none or another's.
"""

import asyncio
import time
from contextlib import suppress
from random import Random

import msgspec

from benchmarks.clients.airflow.runs import WITH_CLAIM, Run
from benchmarks.clients.airflow.sightings import Sightings
from benchmarks.clients.airflow.stage import Stage
from parley_devcluster.parley import CONTROLLER, NODE_PLUGIN

_APART = (4.0, 15.0)
_AWAY = (0.0, 4.0)
_LIMIT = 120.0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What came of both runs."""

    states: tuple[str, ...]
    failed: dict[str, str]
    """Tasks that did not succeed."""
    kills: dict[str, int]
    """How many times each program was killed."""
    seconds: float
    gone_s: float
    """From the end of the second run until nothing of either was left in the cluster."""
    left: tuple[str, ...]
    on_the_nodes: dict[str, int]


async def two_at_once(stage: Stage, seen: Sightings, random: Random) -> Turn:
    """Begin both, and return when nothing is left of either, or after a while."""
    begun = time.monotonic()
    runs = [Run(stage, seen, WITH_CLAIM) for _ in range(2)]
    killed: dict[str, int] = {}
    killing = asyncio.create_task(_kill(stage, random, killed))
    try:
        for run in runs:
            await run.begin()
        states = await asyncio.gather(*(run.ended() for run in runs))
        ended = time.monotonic()
        while seen.left(begun) and time.monotonic() < ended + _LIMIT:
            await seen.change(1.0)
        gone = time.monotonic()
    finally:
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
    tasks = [(name, task["state"]) for run in runs for name, task in (await run.tasks()).items()]
    return Turn(
        states=tuple(states),
        failed={name: str(state) for name, state in tasks if state != "success"},
        kills=killed,
        seconds=round(ended - begun, 1),
        gone_s=round(gone - ended, 1),
        left=tuple(seen.left(begun)),
        on_the_nodes=dict(stage.left()),
    )


async def _kill(stage: Stage, random: Random, killed: dict[str, int]) -> None:
    """Without end: one of Parley's programs, which is started again a moment later."""
    names = [CONTROLLER, *(f"{NODE_PLUGIN}-{node.name}" for node in stage.cluster.nodes)]
    while True:
        await asyncio.sleep(random.uniform(*_APART))
        name = random.choice(names)
        program = stage.cluster.component(name)
        await asyncio.to_thread(program.kill)
        killed[name] = killed.get(name, 0) + 1
        try:
            await asyncio.sleep(random.uniform(*_AWAY))
        finally:
            program.launch()
