"""Pods that disruption budgets protect keep no other pods from being evicted instead, however many they are."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import begin, budget, hold

from parley.api.resources import PODS
from parley.kube.memory.evictions import BUDGETS
from parley.scheduler.claim_preemption import PLANS, SPARED_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


@pytest.mark.parametrize("protected", [PLANS - 1, PLANS, 2 * PLANS + 1])
def test_one_that_is_protected_no_more_is_evicted(play: Play, protected: int) -> None:
    """It is not the first in question: pods of a lower priority stay protected."""

    async def scenario(world: World) -> None:
        names = [f"p{number}" for number in range(protected)]
        evicted = await begin(world, last=1)
        for name in names:
            await world.add_node(f"node-of-{name}", 1)
        await hold(world, **dict.fromkeys(names, 1), other=2)
        for name in names:
            await world.client.patch(PODS, name, {"metadata": {"labels": {"app": "protected"}}}, "default")
        await budget(world, 0, app="test")
        await protect(world, "protected")
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(5 * SPARED_SECONDS)
        assert evicted == []

        await world.client.delete(BUDGETS, "spares", "default")
        await asyncio.sleep(3 * SPARED_SECONDS)
        assert evicted == ["other"]
        assert await world.node_of("urgent")

    play(scenario)


async def protect(world: World, app: str) -> None:
    """One more budget, which allows no disruption."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
    await world.create(BUDGETS, {"metadata": {"name": app}, "spec": spec})
    status = {"disruptionsAllowed": 0, "observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 2}
    await world.client.patch(BUDGETS, app, {"status": status}, "default", subresource="status")
