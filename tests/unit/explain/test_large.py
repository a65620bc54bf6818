"""What an explanation asks of drivers in a large cluster: as many questions as in a small one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.unit.explain.conftest import Play
from tests.unit.scheduler.conftest import World

from parley.api import reasons
from parley.drivers.device import DeviceDriver
from parley.explain.feasibility import PodFeasibility
from parley.explain.remedies import remedies
from parley.explain.snapshot import read
from parley.negotiation.answers import Answer
from parley.sdk import Request
from parley.sdk.embedded import EmbeddedDriver


class Counting(EmbeddedDriver):
    """Counts the questions. One that is refused everywhere costs the driver a look at every node."""

    def __init__(self, inside: EmbeddedDriver) -> None:
        super().__init__(inside.driver)
        self.questions = 0

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.questions += 1
        return super().viable(request, nodes)


async def questions(world: World, pod: str) -> int:
    read_ = await read(world.client, world.clock(), "default")
    drivers = read_.state.drivers
    counting = Counting(drivers[DeviceDriver.name])
    counted = replace(read_, state=replace(read_.state, drivers={**drivers, DeviceDriver.name: counting}))
    key = ("default", pod)
    remedies(counted, PodFeasibility(counted, counted.pods[key]), reasons.NOTHING_VIABLE, counted.schedulings[key])
    return counting.questions


def test_more_nodes_are_not_more_questions_if_none_would_do(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_template("one")
        await world.add_template("three", count=3)
        asked = []
        for size in (10, 30):
            for number in range(size):
                await world.add_node(f"node-{size}-{number}", 2)
                await world.add_pod(f"held-{size}-{number}", "one")
            await world.settle()
            if size == 10:
                await world.add_pod("wants", "three")
                await world.settle()
            asked.append(await questions(world, "wants"))

        assert asked[0] == asked[1] < 10

    play(scenario)
