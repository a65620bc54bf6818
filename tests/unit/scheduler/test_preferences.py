"""Which of several viable nodes is selected: what drivers prefer, how much each counts, and no herds."""

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.negotiation.selection import ranked
from parley.sdk import Driver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class OtherShelfDriver(ShelfDriver):
    """A second driver of the same kind."""

    name: ClassVar[str] = "other.example.com"


async def begin(world: World, nodes: int, *drivers: Driver[Any, Any]) -> list[str]:
    names = [f"n{i:02}" for i in range(nodes)]
    for name in names:
        await world.add_node(name)
    await add_shelf_class(world)
    world.start_parley(drivers=drivers)
    return names


async def places(world: World, pods: int) -> Counter[str]:
    """How many of the pods p0, p1, ... are on each node."""
    return Counter([await world.node_of(f"p{i}") for i in range(pods)])


def test_pods_go_where_their_driver_prefers_them_until_that_is_full(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=2, scores={"n03": 1.0, "n07": 0.6, "n01": 0.2})
        await begin(world, 10, ShelfDriver(behaviour))
        for i in range(7):
            await world.add_pod(f"p{i}", "shelf")
            await world.settle()
        where = [await world.node_of(f"p{i}") for i in range(6)]
        assert where == ["n03", "n03", "n07", "n07", "n01", "n01"]
        assert await world.node_of("p6") not in ("n03", "n07", "n01")

    play(scenario)


def test_a_preferred_node_is_found_among_more_than_the_first_few(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 30, ShelfDriver(Behaviour(other=9, scores={"n17": 0.5})))
        for i in range(5):
            await world.add_pod(f"p{i}", "shelf")
        await world.settle()
        assert await places(world, 5) == {"n17": 5}

    play(scenario)


@pytest.mark.parametrize(
    ("weights", "node"),
    [((1, 1), "n02"), ((3, 1), "n01"), ((1, 3), "n03"), ((0, 1), "n03"), ((1, 0), "n01")],
    ids=str,
)
def test_of_drivers_with_opposite_wishes_the_weightier_class_wins(
    play: Any, weights: tuple[int, int], node: str
) -> None:
    async def scenario(world: World) -> None:
        left = Behaviour(other=9, scores={"n01": 1.0, "n02": 0.7, "n03": 0.0})
        right = Behaviour(other=9, scores={"n01": 0.0, "n02": 0.7, "n03": 1.0})
        for name in ("n01", "n02", "n03"):
            await world.add_node(name)
        await add_shelf_class(world, "left", scoreWeight=weights[0])
        await add_shelf_class(world, "right", driverName=OtherShelfDriver.name, scoreWeight=weights[1])
        world.start_parley(drivers=[ShelfDriver(left), OtherShelfDriver(right)])
        await world.add_pod("p", "left", "right")
        await world.settle()
        assert await world.node_of("p") == node

    play(scenario)


def test_the_largest_weight_of_a_drivers_classes_counts_for_the_driver(play: Any) -> None:
    async def scenario(world: World) -> None:
        left = Behaviour(other=9, scores={"n01": 1.0})
        right = Behaviour(other=9, scores={"n03": 0.9})
        for name in ("n01", "n03"):
            await world.add_node(name)
        await add_shelf_class(world, "light", scoreWeight=1)
        await add_shelf_class(world, "heavy", scoreWeight=5)
        await add_shelf_class(world, "right", driverName=OtherShelfDriver.name, scoreWeight=4)
        world.start_parley(drivers=[ShelfDriver(left), OtherShelfDriver(right)])
        await world.add_pod("p", "light", "right")
        await world.add_pod("q", "light", "heavy", "right")
        await world.settle()
        assert (await world.node_of("p"), await world.node_of("q")) == ("n03", "n01")

    play(scenario)


@pytest.mark.parametrize("scores", [{}, dict.fromkeys([f"n{i:02}" for i in range(20)], 0.5)], ids=["none", "ties"])
def test_equal_pods_on_equal_nodes_are_no_herd(play: Any, scores: dict[str, float]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 20, ShelfDriver(Behaviour(other=40, scores=scores)))
        for i in range(40):
            await world.add_pod(f"p{i}", "shelf")
        await world.settle()
        where = await places(world, 40)
        assert "" not in where
        assert max(where.values()) <= 7, "two on average; by chance alone hardly ever more than seven"
        assert len(where) >= 15

    play(scenario)


def test_a_node_to_avoid_is_selected_only_if_there_is_no_other() -> None:
    scores = {"a": 1.0, "b": 0.1}
    assert ranked(["a", "b", "c"], scores)[0] == "a"
    assert ranked(["a", "b", "c"], scores, {"a"})[0] == "b"
    assert ranked(["a", "b", "c"], scores, {"a", "b", "c"})[0] == "a"
    assert ranked([], scores) == []


def test_of_equally_good_nodes_the_one_with_the_fewest_pods_is_selected() -> None:
    pods = {"a": 3, "b": 1, "c": 1}.__getitem__
    assert ranked(["a", "b", "c"], {}, pods=pods)[0] == "b"
    assert ranked(["a", "b", "c"], {"a": 0.1}, pods=pods)[0] == "a"
    assert ranked(["a", "b", "c"], {}, {"b", "c"}, pods)[0] == "a"
