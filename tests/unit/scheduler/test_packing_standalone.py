"""A class's `prefer` where the driver is a standalone one: the scores in its answers hold it."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, nodes: Mapping[str, int], **class_: Any) -> None:
    """Nodes with so many devices each, whose driver runs outside of the controller."""
    for name, devices in nodes.items():
        await world.add_node(name, devices=devices)
    await world.add_class(**class_)
    await world.add_template("one")
    await world.add_template("two", count=2)
    world.start_parley(drivers=[])
    world.start_driver(DeviceDriver())
    await world.settle(2)


def test_a_pod_for_one_device_leaves_the_pair_to_the_pod_for_two(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"pair": 2, "single": 1, **{f"wide{i}": 4 for i in range(20)}})
        for pod, template in (("p", "one"), ("q", "two"), ("r", "one")):
            await world.add_pod(pod, template)
            await world.settle(5)
        assert [await world.node_of(pod) for pod in "pq"] == ["single", "pair"]
        (entry,) = (await world.scheduling("p")).status.claims
        assert (entry.scores["single"], entry.scores["pair"]) == (100, 50)

    play(scenario)


@pytest.mark.parametrize(("prefer", "nodes"), [("Pack", {10, 11, 12}), ("Spread", {20})])
def test_pods_of_a_burst_are_answered_as_if_those_before_had_been_served(
    play: Any, prefer: str, nodes: set[int]
) -> None:
    """An answer may count a pod twice, as selected and as allocated: then another node is begun, or two."""

    async def scenario(world: World) -> None:
        await begin(world, {f"n{i:02}": 4 for i in range(20)}, prefer=prefer)
        for i in range(40):
            await world.add_pod(f"p{i}", "one")
        await world.settle()
        where = Counter([await world.node_of(f"p{i}") for i in range(40)])
        assert len(where) in nodes
        assert "" not in where
        failed = [event for i in range(40) for event in await world.events_on(f"p{i}") if "Failed" in event[0]]
        assert failed == []

    play(scenario)
