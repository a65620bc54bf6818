"""Runs worlds one after another: seeds, the rhythm of life and rests, and the message of a failure.

A world is decided by its seed and number alone, so a failure is replayed by naming them. Rests come every few
hundred steps. Python's own hashes must not vary (`PYTHONHASHSEED=0`), or sets would take another order.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import structlog
from tests.soak.actions.actions import Actions
from tests.soak.cluster.processes import ProcessLoop, Spinning
from tests.soak.cluster.world import Broken, World
from tests.soak.dump import dump
from tests.soak.plan import Plan
from tests.soak.rules.quiescence import feasible_pods_run, nothing_is_left

STEPS_PER_WORLD = 3000
REMEMBERED = 60
REST_AFTER = (150, 500)
"""Steps between two rests: at least, at most."""


class Failed(Exception):
    """Raised when a world broke a rule. The message has what, how to replay it, and the latest steps."""


@dataclass(frozen=True, slots=True)
class Played:
    """A world that was played to its end: its steps, the virtual seconds that it lasted, and how often all rested
    and a pod was evicted."""

    number: int
    steps: int
    seconds: float
    rests: int
    evictions: int

    def __str__(self) -> str:
        took = f"{self.steps} steps in {self.seconds / 60:.0f} minutes of its time"
        return f"{took}, {self.rests} rests, {self.evictions} evictions;"


def play(
    seed: int,
    number: int,
    steps: int = STEPS_PER_WORLD,
    remembered: int = REMEMBERED,
    plan: Plan | None = None,
    but: Mapping[str, Any] = MappingProxyType({}),
) -> Played:
    """Play one world, of that plan, or of one drawn for it, in which that is different.

    Raises Failed, with the last `remembered` steps.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chance = random.Random(f"{seed}/{number}")
    random.seed(f"{seed}/{number}")  # the jitter of informers
    loop = ProcessLoop()
    loop.set_exception_handler(lambda _, __: None)
    try:
        drawn = Plan.drawn(chance, number).with_standalone(random.Random(f"{seed}/{number}/standalone"))
        drawn = drawn.with_later(random.Random(f"{seed}/{number}/later"))
        chosen = plan or replace(drawn, **but)
        return loop.run_until_complete(_play(seed, number, chance, steps, remembered, chosen))
    except Spinning:
        raise Failed(f"in circles: no time passes, and nothing is written\n\n{_replay(seed, number)}") from None
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True) if left else asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _play(seed: int, number: int, chance: random.Random, steps: int, remembered: int, plan: Plan) -> Played:
    world = World(chance, plan, remembered)
    life = Actions(world)
    rests = 0
    try:
        life.begin()
        world.start()
        while world.server.steps < steps:
            await _live(world, life, world.server.steps + chance.randint(*REST_AFTER))
            await _rest(world, life)
            rests += 1
    except Broken as broken:
        raise Failed(_message(seed, number, world, broken)) from broken
    finally:
        await world.stop()
    return Played(number, world.server.steps, world.loop.time(), rests, world.evictions.count)


async def _live(world: World, life: Actions, until: int) -> None:
    world.set_calm(False)
    while world.server.steps < until:
        await life.act()
        await _pause(world)
        await world.check()


async def _pause(world: World) -> None:
    """Nothing, a few turns of the event loop, moments, or a while."""
    chance = world.chance
    kind = chance.random()
    if kind < 0.45:
        for _ in range(chance.randint(0, 12)):
            await asyncio.sleep(0)
    elif kind < 0.8:
        await world.let_pass(chance.uniform(0, 1))
    elif kind < 0.97:
        await world.let_pass(chance.uniform(0, 8))
    else:
        await world.let_pass(chance.uniform(0, 60))


async def _rest(world: World, life: Actions) -> None:
    world.server.note("rest: trouble ends")
    world.serving_order.rest()
    await life.mend()
    await feasible_pods_run(world)
    world.server.note("rest: all pods are deleted")
    life.delete_pods()
    await nothing_is_left(world)


def _message(seed: int, number: int, world: World, broken: Broken) -> str:
    return (
        f"{broken}\n\n"
        f"after {world.server.steps} steps of world {number}, {world.plan}\n"
        f"{_replay(seed, number)}\n\n"
        f"the latest steps:\n{world.server.last()}\n\n"
        f"the state:\n{dump(world)}"
    )


def _replay(seed: int, number: int) -> str:
    return f"replay: python -m tests.soak --seed {seed} --world {number}"
