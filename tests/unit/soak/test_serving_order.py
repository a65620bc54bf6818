"""Whom the soak's rule "out of turn" finds passed over: nobody by a pod that got what its scheduler chose of an
offer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.observed import Step
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.judge import Judge
from tests.soak.rules.mirrors import Json
from tests.soak.rules.serving_order import ServingOrder

from parley.api.resources import RESOURCE_SLICES

Play = Callable[[Any], None]
LOW, HIGH = "p1-one", "p2-one"
PASSED_OVER = ["out of turn: pod p1-one of priority 0 was served, and pod p2-one of priority 5 waits"]


class Waiting:
    """Two pods, and one device; the controller could serve either."""

    def __init__(self, world: Any) -> None:
        self._world = world
        rules = world.rules
        self.low, self.high = world.pod(LOW, "one"), world.pod(HIGH, "one", priority=5)
        world.node("a")
        world.create(RESOURCE_SLICES, slice_("a", 1))
        servable = frozenset(pod["metadata"]["uid"] for pod in (self.low, self.high))
        memory: Any = SimpleNamespace(servable=lambda _: servable)
        self._order = ServingOrder(lambda: memory)

        def observe(step: Step) -> None:
            rules.observe(step)
            self._order.observe(step)

        world.observe = observe
        self._order.rest()

    def faults(self) -> list[str]:
        attempt = SimpleNamespace(exact=False, excluded=())
        pods: Any = SimpleNamespace(existing_attempt=lambda _: attempt)
        judge = Judge(self._world.server, self._world.rules)
        return list(self._order.faults(judge, pods, SECOND_SCHEDULER))


def allocated(world: Any, low: Json) -> None:
    world.allocate(f"{LOW}-gpu-0", "a", low)


def offered(world: Any, low: Json) -> None:
    world.offer(f"{LOW}-gpu-0", ["a"])
    world.reserve(f"{LOW}-gpu-0", low)
    world.fulfil(f"{LOW}-gpu-0", "a")


@pytest.mark.parametrize(("served", "faults"), [(allocated, PASSED_OVER), (offered, [])])
def test_a_pod_of_higher_priority_waits_for_what_one_of_lower_priority_got(
    play: Play, served: Any, faults: list[str]
) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world)
        await world.wait(1)
        served(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == faults

    play(story)
