"""Whose turn it is with an exclusive claim that is free, whomever the scheduler asks about first."""

import asyncio
from collections.abc import Set
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import AWAY
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart

from parley.api.builtin import Pod
from parley.negotiation.waiting import Topic
from parley.scheduler.attempts import Attempt
from parley.scheduler.extender.rejections import UNASKED_SECONDS, Rejections
from parley.scheduler.pods import Pods

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("extender")


async def begin(world: World, **class_: Any) -> Behaviour:
    """A pod uses the claim; `first` and `second` wait for it, in that order."""
    behaviour = Behaviour(other=10)
    await world.add_node("n")
    await add_shelf_class(world, **class_)
    await world.add_claim("common", "shelf")
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    await world.add_pod("user", claims=["common"])
    await world.settle()
    for name in ("first", "second"):
        await world.add_pod(name, claims=["common"], schedulerName=AWAY)
        await asyncio.sleep(2)
        await viable(world, name)
    await world.settle()
    return behaviour


async def viable(world: World, name: str) -> bool:
    """Whether the pod may go on the node: its scheduler asks."""
    found = await world.ask("filter", await world.question(name, "n"))
    return bool(found["NodeNames"])


async def freed(world: World) -> None:
    """The user's end is seen."""
    await world.delete_pod("user")
    await asyncio.sleep(1)


def test_the_one_behind_is_refused_while_the_scheduler_is_about_to_ask_about_the_first(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await freed(world)
        assert not await viable(world, "second")
        assert await viable(world, "first")
        assert not await viable(world, "second")

    play(scenario)


def test_the_turn_of_one_about_which_the_scheduler_does_not_ask_ends(play: Any) -> None:
    """It finds no node for the first itself. Parley makes it ask about the second then."""

    async def scenario(world: World) -> None:
        await begin(world)
        await freed(world)
        assert not await viable(world, "second")
        before = (await world.pod("second")).metadata.annotations
        await asyncio.sleep(UNASKED_SECONDS)
        assert (await world.pod("second")).metadata.annotations != before
        assert await viable(world, "second")

    play(scenario)


def test_one_of_a_higher_priority_does_not_wait(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("urgent", claims=["common"], priority=5, schedulerName=AWAY)
        await freed(world)
        assert await viable(world, "urgent")

    play(scenario)


def test_one_that_waits_for_something_else_keeps_nobody_out(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_claim("other", "nowhere")
        await world.add_pod("before", claims=["other", "common"], priority=5, schedulerName=AWAY)
        await world.settle()
        assert not await viable(world, "before")
        await freed(world)
        assert not await viable(world, "before")
        assert await viable(world, "first")

    play(scenario)


def test_a_new_leader_goes_by_who_came_first(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        await restart(world, [ShelfDriver(behaviour)], after=1)
        await world.delete_pod("user")
        await asyncio.sleep(2)
        assert not await viable(world, "second")
        assert await viable(world, "first")

    play(scenario)


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that are looked at from now on, each as often as that happens."""
    looks: list[str] = []
    expected_until = Rejections.call_expected_until

    def counted(self: Rejections, pod: Pod, topics: Set[Topic]) -> float | None:
        looks.append(pod.metadata.name)
        return expected_until(self, pod, topics)

    monkeypatch.setattr(Rejections, "call_expected_until", counted)
    return looks


def test_however_many_wait_one_look_tells_whose_turn_it_is(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have thousands wait, and a scheduler ask about all of them at every change."""
    looks = counted_looks(monkeypatch)

    async def scenario(world: World) -> None:
        await begin(world)
        for number in range(50):
            await world.add_pod(f"later-{number}", claims=["common"], schedulerName=AWAY)
            await world.settle(2)
            await viable(world, f"later-{number}")
        await freed(world)
        looks.clear()
        assert not await viable(world, "later-49")
        assert looks == ["first"]

    play(scenario)


def test_what_a_look_costs_a_new_leader_does_not_grow_with_the_claims_that_pods_have_in_common(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have thousands of pods that name hundreds of claims each: other pods' calls would wait."""
    looks: list[str] = []
    attempt = Pods.attempt

    def counted(self: Pods, pod: Pod) -> Attempt:
        looks.append(pod.metadata.name)
        return attempt(self, pod)

    async def scenario(world: World) -> None:
        behaviour, claims = Behaviour(other=100), [f"claim-{number}" for number in range(40)]
        await world.add_node("n")
        await add_shelf_class(world)
        for name in claims:
            await world.add_claim(name, "shelf")
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.add_pod("first", claims=claims, schedulerName=AWAY)
        await asyncio.sleep(1)
        for number in range(30):
            await world.add_pod(f"later-{number}", claims=claims, schedulerName=AWAY)
        await world.settle()
        await restart(world, [ShelfDriver(behaviour)], after=1)
        await asyncio.sleep(1)
        monkeypatch.setattr(Pods, "attempt", counted)
        assert await viable(world, "first")
        assert 30 < len(looks) < 30 * 2 + len(claims)
        assert not await viable(world, "later-3")

    play(scenario)


def test_each_that_waits_is_looked_at_once_however_many_claims_it_has_in_common(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have thousands of pods that wait for something else, and that name hundreds of claims each."""

    async def scenario(world: World) -> None:
        await world.add_node("n", devices=20)
        await world.add_class()
        await world.add_template("too-many", count=30)
        world.start_parley()
        claims = [f"claim-{number}" for number in range(10)]
        for name in claims:
            await world.add_claim(name)
        before = [f"before-{number}" for number in range(10)]
        for number, name in enumerate(before):
            containers = requesting(cpu=f"{number + 1}m")
            await world.add_pod(name, "too-many", claims=claims, schedulerName=AWAY, containers=containers)
            await asyncio.sleep(2)
            assert not await viable(world, name)
        await world.settle()
        await world.add_pod("last", claims=claims, schedulerName=AWAY)
        await asyncio.sleep(2)
        looks = counted_looks(monkeypatch)
        assert await viable(world, "last")
        assert looks == before

    play(scenario)


def test_a_shared_claim_is_joined_in_any_order(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, shareable=True)
        await freed(world)
        assert await viable(world, "second")

    play(scenario)
