"""A class's `prefer`: where little is left (Pack), or much (Spread), of what the driver hands out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.drivers.device import DeviceDriver
from parley.sdk import Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, nodes: Mapping[str, int], **class_: Any) -> None:
    """Nodes with so many devices each, and templates for one, two, three and four of them."""
    for name, devices in nodes.items():
        await world.add_node(name, devices=devices)
    await world.add_class(**class_)
    for name, count in (("one", 1), ("two", 2), ("three", 3), ("four", 4)):
        await world.add_template(name, count=count)
    world.start_parley()
    await world.settle(2)


async def placed(world: World, *pods: tuple[str, str]) -> list[str]:
    """Where pods (name and template) go that come one after the other."""
    for name, template in pods:
        await world.add_pod(name, template)
        await world.settle(2)
    return [await world.node_of(name) for name, _ in pods]


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("pod", ["p", "q", "r", "s"])
def test_a_pod_for_one_device_leaves_the_pair_to_the_pod_for_two(
    play: Play, names: tuple[str, str], pod: str
) -> None:
    async def scenario(world: World) -> None:
        single, pair = names
        await begin(world, {single: 1, pair: 2})
        assert await placed(world, (pod, "one"), ("wide", "two")) == [single, pair]

    play(scenario)


def test_the_fullest_of_many_nodes_is_found(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {f"n{i:03}": 1 if i == 77 else 4 for i in range(100)})
        assert await placed(world, ("p", "one")) == ["n077"]

    play(scenario)


def test_pods_for_different_numbers_of_devices_go_where_they_fit_best(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 4, "b": 3, "c": 2, "d": 1})
        pods = [("p2", "two"), ("p1", "one"), ("p3", "three"), ("p4", "four")]
        assert await placed(world, *pods) == ["c", "d", "b", "a"]

    play(scenario)


def test_what_all_claims_of_a_pod_take_together_decides(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 4, "b": 3, "c": 2})
        await world.add_pod("p", "one", "two")
        await world.settle(2)
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_gap_elsewhere_is_no_use_to_a_pod_with_a_selector(play: Play) -> None:
    async def scenario(world: World) -> None:
        for i in range(12):
            await world.add_node(f"cold{i}", devices=1)
        await world.add_node("warm-wide", devices=4, labels={"zone": "warm"})
        await world.add_node("warm-slim", devices=2, labels={"zone": "warm"})
        await begin(world, {})
        await world.add_pod("p", "one", nodeSelector={"zone": "warm"})
        await world.settle(2)
        assert await world.node_of("p") == "warm-slim"

    play(scenario)


def test_a_share_is_taken_of_a_device_that_is_partly_used(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 0, "c": 0})
        await world.add_template("share", shared=True)
        await world.publish("a", ["gpu-0"], slices=4)
        await world.publish("b", ["gpu-0", "gpu-1"], slices=4)
        assert await placed(world, ("first", "share")) == ["a"]
        await world.publish("c", ["gpu-0"])
        pods = [(f"p{i}", "share") for i in range(3)]
        assert await placed(world, *pods) == ["a", "a", "a"]

    play(scenario)


def test_a_class_can_spread(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 4, "c": 2}, prefer="Spread")
        pods = [("p", "one"), ("q", "one"), ("r", "one")]
        assert (await placed(world, *pods))[:2] == ["b", "b"]

    play(scenario)


def test_a_class_of_claims_that_pods_share_spreads_unless_it_says_otherwise(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 4}, shareable=True)
        await world.add_class("packed", shareable=True, prefer="Pack")
        await world.add_template("packed", class_name="packed")
        assert await placed(world, ("p", "one"), ("q", "packed")) == ["b", "a"]

    play(scenario)


@pytest.mark.parametrize(("prefer", "fewest", "most"), [("Pack", 10, 12), ("Spread", 15, 20)])
def test_a_burst_is_packed_or_spread_and_nobody_collides(play: Play, prefer: str, fewest: int, most: int) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {f"n{i:02}": 4 for i in range(20)}, prefer=prefer)
        for i in range(40):
            await world.add_pod(f"p{i}", "one")
        await world.settle()
        where = Counter([await world.node_of(f"p{i}") for i in range(40)])
        assert "" not in where
        assert fewest <= len(where) <= most
        assert not world.calls.failed_binds
        assert set((await world.devices()).values()) == {1}

    play(scenario)


class OwnScores(DeviceDriver):
    """A device driver with preferences of its own."""

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return {node: 1.0 for node in nodes if node == "b"}

    def fullest(self, request: Request[Any, Any]) -> Iterable[str]:
        raise AssertionError("nobody goes by what is left")


def test_a_driver_with_scores_of_its_own_decides_itself(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 4, **{f"n{i}": 1 for i in range(10)}})
        await world.crash()
        world.start_parley(drivers=[OwnScores()])
        assert await placed(world, ("p", "one")) == ["b"]

    play(scenario)


def test_of_a_driver_that_can_not_tell_what_is_left_pods_decide_where_the_class_packs(play: Play) -> None:
    async def scenario(world: World) -> None:
        for i in range(12):
            await world.add_node(f"n{i:02}")
        await add_shelf_class(world, "packed", prefer="Pack")
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=3))])
        await world.add_pod("other", nodeName="n07", schedulerName="none")
        await world.settle(2)
        assert await placed(world, *((f"p{i}", "packed") for i in range(3))) == ["n07"] * 3

    play(scenario)


@pytest.mark.parametrize("outside", [False, True], ids=["", "standalone driver"])
def test_claims_that_no_pod_waits_for_are_packed_too(play: Play, outside: bool) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {**{f"n{i:02}": 4 for i in range(20)}, "pair": 2, "single": 1})
        if outside:
            await world.crash()
            world.start_parley(drivers=[])
            world.start_driver(DeviceDriver())
        for name in ("p", "q"):
            await world.add_claim(name, mode="Immediate")
            await world.settle(5)
        held = [(await world.claim(name)).status.allocation for name in ("p", "q")]
        assert [one.handles[0].devices[0].pool for one in held if one is not None] == ["single", "pair"]

    play(scenario)
