"""Random lives with standalone drivers: SEEDS=100 plays so many, from another beginning with FIRST_SEED=1000."""

import os
from collections.abc import Callable

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.standalone_lives.life import Life

FIRST, SEEDS = int(os.environ.get("FIRST_SEED", "0")), int(os.environ.get("SEEDS", "8"))
STEPS = 40


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_no_resource_is_used_twice_and_nothing_is_left(play: Callable[..., None], seed: int) -> None:
    lives: list[Life] = []

    async def scenario(world: World) -> None:
        lives.append(Life(world, seed))
        await lives[-1].play(STEPS)

    try:
        play(scenario)
    except BaseException:
        print(*lives[-1].log, sep="\n")
        raise
