"""What an explanation asks of drivers in a large cluster: as many questions as in a small one."""

from collections import UserDict
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.explain.conftest import Play, explained
from tests.unit.explain.waiting_pods import one_runs
from tests.unit.scheduler.conftest import World

from parley.api import reasons
from parley.api.builtin import Pod, ResourceSlice
from parley.api.resources import CLASSES
from parley.drivers import built_in
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.explain import overview
from parley.explain.explaining import explain_in, read_pod
from parley.explain.feasibility import PodFeasibility
from parley.explain.remedies import remedies
from parley.explain.snapshot import read
from parley.kube.cache import Key
from parley.negotiation.answers import Answer
from parley.sdk import Request
from parley.sdk.embedded import EmbeddedDriver


class Counting(EmbeddedDriver):
    """Counts the questions. One that is refused everywhere costs the driver a look at every node. `forgotten` is
    how often it was to act as if something were free."""

    def __init__(self, inside: EmbeddedDriver) -> None:
        super().__init__(inside.driver)
        self.questions = self.forgotten = 0

    def forget(self, uid: str) -> None:
        self.forgotten += 1
        super().forget(uid)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.questions += 1
        return super().viable(request, nodes)


async def counted(world: World, pod: str, driver: str = DeviceDriver.name) -> Counting:
    """What the driver was asked for the remedies of a waiting pod."""
    read_ = await read(world.client, world.clock(), "default")
    drivers = read_.state.drivers
    counting = Counting(drivers[driver])
    asked = replace(read_, state=replace(read_.state, drivers={**drivers, driver: counting}))
    key = ("default", pod)
    remedies(asked, PodFeasibility(asked, asked.pods[key]), reasons.NOTHING_VIABLE, asked.schedulings[key])
    return counting


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
            asked.append((await counted(world, "wants")).questions)

        assert asked[0] == asked[1] < 10

    play(scenario)


def test_whose_tokens_would_be_enough_is_found_without_trying_each_pod_with_all_others(play: Play) -> None:
    holders = 150

    async def scenario(world: World) -> None:
        world.start_parley(drivers=built_in())
        await world.add_node("a")
        await world.add_node("b")
        body = {"metadata": {"name": "licence"}, "driverName": TokensDriver.name, "nodePart": "None"}
        await world.create(CLASSES, {**body, "parameters": {"pool": holders}})
        await world.add_template("one", "licence")
        await world.add_template("many", "licence", count=holders - 10)
        for number in range(holders):
            await world.add_pod(f"held-{number}", "one")
        await world.settle()
        await world.add_pod("wants", "many")
        await world.settle()

        assert len((await explained(world, "wants")).remedies[0].pods) == holders - 10
        assert (await counted(world, "wants", TokensDriver.name)).forgotten < 20 * holders

    play(scenario)


class Slices(list[ResourceSlice]):
    """ResourceSlices that are counted when somebody looks at all of them."""

    looks = 0

    def __iter__(self) -> Iterator[ResourceSlice]:
        self.looks += 1
        return super().__iter__()


def test_more_classes_are_not_more_looks_at_what_all_nodes_have(play: Play) -> None:
    async def scenario(world: World) -> None:
        for number in range(20):
            await world.add_class(f"gpu-{number}")
        await world.add_node("a", 3)
        found = await read(world.client, world.clock(), "default")
        slices = Slices(found.slices)

        rows = overview.classes(replace(found, slices=slices))

        assert {(row.total, row.free) for row in rows} == {(3, 3)}
        assert (len(rows), slices.looks) == (20, 1)

    play(scenario)


class Walked(UserDict[Key, Pod]):
    """Pods, and how often all of them were looked at."""

    times = 0

    def items(self) -> ItemsView[Key, Pod]:
        self.times += 1
        return super().items()


@pytest.mark.parametrize(("pod", "times"), [("runs", 0), ("wants", 1)])
def test_other_pods_that_wait_are_looked_at_only_for_a_pod_that_waits(play: Play, pod: str, times: int) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("wants", "one")
        await world.settle()
        objects = await read_pod(world.client, "default", pod)
        snapshot = await read(world.client, world.clock(), "default")
        pods = Walked(snapshot.pods)

        explain_in(replace(snapshot, pods=pods), objects)

        assert pods.times == times

    play(scenario)
