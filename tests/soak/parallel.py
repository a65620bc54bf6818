"""Plays worlds in several processes of the machine, each in a Python whose hashes do not vary.

Sets of strings have another order in every run of Python unless `PYTHONHASHSEED` is set, and a world that
was seen to fail must fail again. So worlds are played in processes started with it, never in the caller's own.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import count

from tests.soak.cluster.binding_faults import LOST_BINDINGS
from tests.soak.plan import CALM, Plan
from tests.soak.planted.bugs import planted
from tests.soak.running import REMEMBERED, Failed, Played, play
from tests.support.garbage import collect_seldom
from tests.support.trouble import Rates

Outcome = Played | str
"""What became of a world: played, or the message of its failure."""


def worlds(seed: int, steps: int, processes: int) -> Iterator[Outcome]:
    """Play worlds 0, 1, ... until they made that many steps in all; as they end, in any order."""
    with pool(processes) as executor:
        numbers, running, made = count(), set[Future[Outcome]](), 0
        while made < steps or running:
            while made < steps and len(running) < processes:
                running.add(executor.submit(outcome, seed, next(numbers)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for ended in done:
                result = ended.result()
                made += result.steps if isinstance(result, Played) else 0
                yield result


def outcome(seed: int, number: int, remembered: int = REMEMBERED) -> Outcome:
    """Of one world; a failure's message has that many steps."""
    try:
        return play(seed, number, remembered=remembered)
    except Failed as failed:
        return str(failed)


def caught(bug: str, seed: int, most: int, first: int = 0) -> str:
    """The message of the first failure with that bug planted, in at most that many worlds; "" if none is found.

    World `first` is played before the others.
    """
    with planted(bug) as broken:
        network_faults = Rates.bad() if broken.network_faults else CALM
        plan = Plan(
            broken.lease,
            network_faults,
            interference=broken.interference,
            extender=1.0 if broken.extender else 0.0,
            binding_faults=LOST_BINDINGS if broken.lost_bindings else CALM,
            hostile_tenant=broken.hostile_tenant,
            kept_claims=broken.kept_claims,
            preemption=broken.preemption,
            node_data=broken.node_data,
            reserved_room=broken.reserved_room,
            room_yields=broken.room_yields,
            views=broken.views,
            immediate_claims=broken.immediate_claims,
            on_demand=broken.on_demand,
            class_limits=broken.class_limits,
            parameter_references=broken.parameter_references,
            tokens=broken.tokens,
            misbehaving_driver=broken.misbehaving_driver,
            standalone=broken.standalone,
            no_execute_taints=broken.no_execute_taints,
            parley_watch_lag=broken.parley_watch_lag,
            compared_with_successors="lost in a restart" in broken.rules,
        )
        for number in sorted(range(most), key=lambda number: number != first):
            try:
                play(seed, number, plan=plan)
            except Failed as failed:
                return str(failed)
    return ""


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that hash alike."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    spawn = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(processes, mp_context=spawn, initializer=collect_seldom)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
