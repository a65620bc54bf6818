"""Limits of a class over restarts: what was allocated before counts as much as it did."""

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, Wanted, add_shelf_class, restart
from tests.unit.scheduler.test_limits import running, waiting_for

from parley.api.resources import CLASSES, CONFIG_MAPS
from parley.sdk import ClaimRequest, NoParameters

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

FIVE = [{"units": 5}]


class PlainShelf(ShelfDriver):
    """Its classes have no parameters: what a claim counts for is not recorded, the claim says it."""

    class_parameters = cast(Any, NoParameters)

    def units(self, claim: ClaimRequest[Wanted, Any]) -> int:
        return claim.parameters.count


async def begin(world: World, driver: type[ShelfDriver] = PlainShelf, **class_: Any) -> Behaviour:
    """One node with many places, and the class shelf with five units for each namespace."""
    behaviour = Behaviour(other=100)
    await world.add_node("a")
    await add_shelf_class(world, limits=FIVE, **class_)
    world.start_parley(drivers=[driver(behaviour)])
    return behaviour


@pytest.mark.parametrize("driver", [ShelfDriver, PlainShelf])
@pytest.mark.parametrize("kind", ["generated", "named"])
def test_what_was_held_before_a_restart_counts_with_class_and_units(
    play: Any, kind: str, driver: type[ShelfDriver]
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, driver)
        await world.add_template("four", "shelf", count=4)
        await world.add_claim("four", "shelf", count=4)
        await world.add_pod(
            "p", *(["four"] if kind == "generated" else []), claims=["four"][kind == "generated" :]
        )
        await world.settle()
        assert await running(world) == ["p"]
        await restart(world, [driver(behaviour)])
        await world.add_template("two", "shelf", count=2)
        await world.add_pod("q", "two")
        await world.settle()
        assert (await waiting_for(world, "q"))[1].startswith(
            "namespace default holds 4 of 5 units that class shelf allows it, 2 more wanted: "
        )
        await world.delete_pod("p")
        await world.settle()
        assert await running(world) == ["q"]

    play(scenario)


@pytest.mark.parametrize("kind", ["generated", "named", "immediate"])
def test_what_is_held_counts_after_a_restart_as_its_class_said_when_it_was_allocated(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, ShelfDriver, parameters={"times": 2})
        await world.add_template("two", "shelf", count=2)
        if kind == "generated":
            await world.add_pod("p", "two")
        else:
            await world.add_claim("two", "shelf", "Immediate" if kind == "immediate" else "", count=2)
            await world.add_pod("p", claims=["two"])
        await world.settle()
        assert await running(world) == ["p"]
        await world.client.patch(CLASSES, "shelf", {"parameters": {"times": 1}})
        await restart(world, [ShelfDriver(behaviour)])
        await world.add_pod("q", "two")
        await world.settle()
        assert (await waiting_for(world, "q"))[1].startswith(
            "namespace default holds 4 of 5 units that class shelf allows it, 2 more wanted: "
        )

    play(scenario)


async def begin_with_four_of_five(world: World) -> Behaviour:
    """A pod holds four of the five units that its namespace may have."""
    behaviour = await begin(world)
    await world.add_template("four", "shelf", count=4)
    await world.add_pod("p", "four")
    await world.settle()
    return behaviour


def test_units_count_also_if_the_class_was_away_during_the_restart(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin_with_four_of_five(world)
        await world.client.delete(CLASSES, "shelf")
        await restart(world, [PlainShelf(behaviour)])
        await world.settle()
        await world.add_class("shelf", driverName=ShelfDriver.name, limits=[{"units": 5}])
        await world.add_template("two", "shelf", count=2)
        await world.add_pod("q", "two")
        await world.settle()
        assert (await waiting_for(world, "q"))[0] == "LimitReached"

    play(scenario)


@pytest.mark.parametrize("kind", ["generated", "named"])
def test_units_count_also_if_the_class_got_its_parameters_from_an_object_before_the_restart(
    play: Any, kind: str
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        await world.add_template("four", "shelf", count=4)
        await world.add_claim("four", "shelf", count=4)
        await world.add_pod(
            "p", *(["four"] if kind == "generated" else []), claims=["four"][kind == "generated" :]
        )
        await world.settle()
        await world.client.create(
            CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"parameters": "{}"}}, "default"
        )
        reference = {"kind": "ConfigMap", "namespace": "default", "name": "m"}
        await world.client.patch(CLASSES, "shelf", {"parameters": None, "parametersRef": reference})
        await restart(world, [PlainShelf(behaviour)])
        await world.add_template("two", "shelf", count=2)
        await world.add_pod("q", "two")
        await world.settle(70)
        assert (await waiting_for(world, "q"))[1].startswith(
            "namespace default holds 4 of 5 units that class shelf allows it, 2 more wanted: "
        )

    play(scenario)


def test_units_count_also_if_the_class_was_not_understood_during_the_restart(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin_with_four_of_five(world)
        await world.client.patch(CLASSES, "shelf", {"parameters": {"odd": 1}})
        await restart(world, [PlainShelf(behaviour)])
        await world.settle()
        await world.client.patch(CLASSES, "shelf", {"parameters": {"odd": None}})
        await world.add_template("two", "shelf", count=2)
        await world.add_pod("q", "two")
        await world.settle(70)
        assert (await waiting_for(world, "q"))[0] == "LimitReached"

    play(scenario)
