"""Room that is reserved for the users of a claim and yields to pods with claims of other classes: they run in it
while no user does, and what they give up is reserved again."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import NIGHT, begin, borrower, claim, disks, task

from parley.api import reasons
from parley.api.resources import CLASSES, PODS
from parley.drivers.tokens import TokensDriver
from parley.drivers.workspace import WorkspaceDriver

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begun(world: World, *yields_to: str) -> None:
    """The claim `build` reserves 6 of the node's 8 CPUs, and its first task has ended."""
    await begin(world, "a", yields_to=yields_to)
    await claim(world, "build", {"cpu": "6"})
    assert await task(world, "clone", "build") == "a"
    await world.finish_pod("clone")


async def other(world: World, name: str, cpu: str) -> str:
    """A task with a claim of the class `workspace`, to which nothing yields."""
    await claim(world, name)
    return await task(world, name, name, cpu=cpu)


def test_borrowers_run_in_reserved_room_and_others_are_kept_out_of_what_is_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        assert await borrower(world, "borrower", cpu="5") == "a"
        assert await other(world, "kept-out", cpu="3") == ""
        assert await other(world, "beside", cpu="2") == "a"
        await world.finish_pod("borrower")
        await asyncio.sleep(20)
        assert await world.node_of("kept-out") == ""
        assert await task(world, "late", "build", cpu="6") == "a"

    play(scenario)


@pytest.mark.parametrize("yields_to", [(), ("another",)])
def test_without_its_class_a_pod_is_kept_out(play: Play, yields_to: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await begun(world, *yields_to)
        assert await borrower(world, "borrower", cpu="3") == ""

    play(scenario)


def test_borrowers_together_take_no_more_than_there_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        placed = [await borrower(world, f"borrower-{i}", cpu="3") for i in range(3)]
        assert placed == ["a", "a", ""]

    play(scenario)


def test_borrowers_that_come_at_the_same_moment_do_not_take_the_same_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        await asyncio.gather(*(borrower(world, f"borrower-{i}", cpu="3") for i in range(4)))
        assert sorted([await world.node_of(f"borrower-{i}") for i in range(4)]) == ["", "", "a", "a"]

    play(scenario)


def test_a_user_waits_for_borrowers_and_comes_before_further_ones(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        assert [await borrower(world, f"borrower-{i}", cpu="2") for i in range(3)] == ["a", "a", "a"]
        assert await other(world, "beside", cpu="2") == "a"
        assert await task(world, "late", "build", cpu="4") == ""
        await world.finish_pod("borrower-0")
        assert await borrower(world, "borrower-3", cpu="2") == ""
        assert await other(world, "kept-out", cpu="2") == ""
        await world.finish_pod("borrower-1")
        await asyncio.sleep(20)
        assert [await world.node_of(name) for name in ("late", "borrower-3", "kept-out")] == ["a", "", ""]
        await world.finish_pod("late")
        await asyncio.sleep(20)
        assert [await world.node_of(name) for name in ("borrower-3", "kept-out")] == ["a", ""]

    play(scenario)


def test_a_borrower_comes_when_the_user_that_waited_is_gone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        assert await other(world, "beside", cpu="2") == "a"
        assert await borrower(world, "first", cpu="4") == "a"
        assert await task(world, "late", "build", cpu="6") == ""
        assert await borrower(world, "second", cpu="2") == ""
        await world.client.delete(PODS, "late", NAMESPACE)
        await asyncio.sleep(20)
        assert await world.node_of("second") == "a"

    play(scenario)


def test_a_borrower_comes_when_the_user_that_waited_has_its_room_from_one_of_several_claims(play: Play) -> None:
    """Each of them kept all of it for the user, whose turn was after the borrower's."""

    async def scenario(world: World) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        for name in ("one", "two"):
            await claim(world, name, {"cpu": "3"}, "Immediate")
        await asyncio.sleep(5)
        await task(world, "plain", cpu="5", nodeName="a", schedulerName="")
        assert await task(world, "user", "one", "two", cpu="4") == ""
        assert await borrower(world, "second", cpu="3", priority=10) == ""
        await world.finish_pod("plain")
        await asyncio.sleep(20)
        assert [await world.node_of(name) for name in ("user", "second")] == ["a", "a"]

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_the_reason_names_whose_pods_are_in_the_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        assert await borrower(world, "borrower", cpu="4") == "a"
        assert await task(world, "late", "build", cpu="6") == ""
        status = (await world.scheduling("late")).status
        assert status.waiting_for == reasons.CLAIM_STRANDED
        assert (
            "where the pod can't go: node a: too little cpu left: of what is reserved for claim default/build, "
            "pods of class night, to which it yields, use 4 cpu"
        ) in status.message

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize(("users_cpu", "told"), [("1", {"one": 2, "two": 1}), ("4", {})])
def test_the_reason_counts_no_room_twice_and_none_that_users_have(
    play: Play, users_cpu: str, told: dict[str, int]
) -> None:
    """Two claims reserve 2 CPUs each, and a borrower has 3."""

    async def scenario(world: World) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        for name in ("one", "two"):
            await claim(world, name, {"cpu": "2"}, "Immediate")
        await world.settle()
        assert await borrower(world, "borrower", cpu="3") == "a"
        await task(world, "user", "one", "two", cpu=users_cpu, nodeName="a", schedulerName="")
        assert await task(world, "late", "one", "two", cpu="5") == ""
        message = (await world.scheduling("late")).status.message
        assert re.findall(
            r"for claim default/(\w+), pods of class night, to which it yields, use (\d)", message
        ) == [(name, str(cpu)) for name, cpu in told.items()]

    play(scenario)


def test_a_new_controller_knows_who_is_in_the_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        record = (await world.claim("build")).status.allocation
        assert record is not None
        assert record.reserve is not None
        assert record.reserve.yields_to == (NIGHT,)
        assert await borrower(world, "borrower", cpu="4") == "a"
        await world.crash()
        world.start_parley(drivers=[WorkspaceDriver()])
        await world.settle()
        assert await other(world, "kept-out", cpu="3") == ""
        assert await other(world, "beside", cpu="2") == "a"
        assert await borrower(world, "second", cpu="2") == "a"
        assert await borrower(world, "third", cpu="1") == ""

    play(scenario)


def test_a_claim_from_a_template_makes_a_borrower_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, NIGHT)
        await world.add_template("nightly", NIGHT, size="1Mi")
        await world.add_pod("borrower", "nightly", containers=requesting(cpu="5"))
        await world.settle()
        assert await world.node_of("borrower") == "a"
        assert await other(world, "kept-out", cpu="3") == ""
        assert await other(world, "beside", cpu="2") == "a"

    play(scenario)


def test_a_claim_that_can_be_used_everywhere_makes_its_pod_a_borrower_where_it_is_bound(play: Play) -> None:
    async def scenario(world: World) -> None:
        await disks(world, "a", yields_to=("licence",))
        class_ = {
            "metadata": {"name": "licence"},
            "driverName": TokensDriver.name,
            "parameters": {"pool": 3},
            "nodePart": "None",
        }
        await world.create(CLASSES, class_)
        world.start_parley(drivers=[WorkspaceDriver(), TokensDriver()])
        await claim(world, "build", {"cpu": "6"})
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        await world.add_claim("seat", "licence", count=1)
        assert await task(world, "borrower", "seat", cpu="5") == "a"
        assert await other(world, "kept-out", cpu="3") == ""
        assert await other(world, "beside", cpu="2") == "a"

    play(scenario)
