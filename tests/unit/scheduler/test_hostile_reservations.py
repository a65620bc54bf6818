"""What tenants request cannot slow down decisions about nodes where room is reserved."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.support.effort import calls, peak_bytes
from tests.unit.scheduler.reserving import NIGHT, begin, borrower, claim, task

from parley.api.names import RESERVATION_GATE
from parley.api.resources import PODS
from parley.api.selectors import node_selector
from parley.control import room
from parley.control.room import Requester, room_shortage, room_to_hold
from parley.negotiation import waiting
from parley.scheduler import candidates
from parley.scheduler.queues import ROOM_SECONDS

Play = Callable[[Any], None]

BUILDS = [f"build-{i}" for i in range(10)]


def test_what_others_cost_where_room_is_reserved_does_not_grow_with_the_resources_that_a_user_names(
    play: Play,
) -> None:
    async def scenario(world: Any) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        names = {f"x.y/{i}": "1" for i in range(4000)}
        await world.add_pod("evil", claims=["build"], containers=requesting(cpu="1", **names), nodeName="a")
        await world.settle()
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 3000})
        assert "4 cpu are reserved" in room_shortage(state, "a", other)
        assert peak_bytes(lambda: room_shortage(state, "a", other)) < 20_000, (
            "a copy of all names takes many times as much"
        )
        (left,) = room_to_hold(state, "a", lambda _: True).amounts.values()
        assert left == {"cpu": 4000}
        assert peak_bytes(lambda: room_to_hold(state, "a", lambda _: True)) < 20_000

    play(scenario)


@pytest.mark.parametrize("kind", ["gated", "waiting", "ended"])
def test_what_others_cost_where_room_is_reserved_does_not_grow_with_the_pods_that_name_the_claims(
    play: Play, kind: str
) -> None:
    """A pod that its owner gates costs its owner nothing, and may name hundreds of claims."""

    async def scenario(world: Any) -> None:
        await begin(world, "a")
        names = [f"build-{i}" for i in range(10)]
        for name in names:
            await claim(world, name, {"cpu": "100m"}, mountPath=f"/{name}")
        assert await task(world, "clone", *names, cpu="100m") == "a"
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 8000})
        before = (
            calls(lambda: room_shortage(state, "a", other)),
            calls(lambda: room_to_hold(state, "a", lambda _: True)),
        )
        spec: dict[str, Any] = {
            "gated": {"schedulingGates": [{"name": "x.y/z"}]},
            "waiting": {"nodeSelector": {"no": "where"}, "schedulerName": "nobody"},
            "ended": {"nodeName": "a"},
        }
        for i in range(100):
            await world.add_pod(f"evil-{i}", claims=names, **spec[kind])
            if kind == "ended":
                await world.finish_pod(f"evil-{i}")
        await world.settle()
        assert "cpu" in room_shortage(state, "a", other)
        assert calls(lambda: room_shortage(state, "a", other)) < before[0] * 1.2
        if kind != "waiting":  # these may come for the room
            assert calls(lambda: room_to_hold(state, "a", lambda _: True)) < before[1] * 1.2

    play(scenario)


def test_what_others_cost_where_room_yields_does_not_grow_with_the_claims_of_borrowers_times_those_that_yield(
    play: Play,
) -> None:
    async def scenario(world: Any) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        names = [f"build-{i}" for i in range(30)]
        for name in names:
            await claim(world, name, {"cpu": "100m"}, mountPath=f"/{name}")
        assert await task(world, "clone", *names, cpu="100m") == "a"
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 8000})
        looks = [lambda: room_shortage(state, "a", other), lambda: room_to_hold(state, "a", lambda _: True)]
        before = [calls(look) for look in looks]
        many = [f"night-{i}" for i in range(100)]
        for name in many:
            await world.add_claim(name, NIGHT, size="1Mi", mountPath=f"/{name}")
        assert await task(world, "borrower", *many, cpu="10m") == "a"
        assert "cpu" in room_shortage(state, "a", other)
        assert all(calls(look) < 2 * first for look, first in zip(looks, before, strict=True))

    play(scenario)


def test_what_others_cost_where_room_yields_does_not_grow_with_the_borrowers_times_the_claims(play: Play) -> None:
    """A tenant may have hundreds of claims there that each reserve next to nothing."""

    async def scenario(world: Any) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        for number in range(40):
            await claim(world, f"build-{number}", {"cpu": "1m"}, mode="Immediate")
        await world.settle()
        state, other = world.controller._base.state, Requester("default", "other", {"cpu": 8000})
        looks = [lambda: room_shortage(state, "a", other), lambda: room_to_hold(state, "a", lambda _: True)]
        assert await borrower(world, "borrower", cpu="1m") == "a"
        before = [calls(look) for look in looks]
        for number in range(30):
            assert await borrower(world, f"borrower-{number}", cpu="1m") == "a"
        assert all(calls(look) < 2 * first for look, first in zip(looks, before, strict=True))

    play(scenario)


async def yielding(world: Any) -> None:
    """The claims `BUILDS` yield their room on the node."""
    await begin(world, "a", yields_to=[NIGHT])
    for name in BUILDS:
        await claim(world, name, {"cpu": "500m"}, mountPath=f"/{name}")
    assert await task(world, "clone", *BUILDS, cpu="500m") == "a"


def counting() -> tuple[list[str], Callable[..., str]]:
    """The nodes whose room was looked at, by a `room_shortage` that notes them."""
    looks: list[str] = []

    def counted(state: Any, node: str, *args: Any) -> str:
        looks.append(node)
        return room_shortage(state, node, *args)

    return looks, counted


async def users_wait(world: Any, *numbers: int) -> None:
    """Pods that name all of these claims, and that no scheduler places."""
    nowhere = {"nodeSelector": {"no": "where"}, "schedulerName": "nobody"}
    for number in numbers:
        await world.add_pod(f"evil-{number}", claims=BUILDS, containers=requesting(cpu="10m"), **nowhere)
    await world.settle()


def test_what_a_borrower_costs_does_not_grow_with_the_pods_that_wait_for_the_claims(play: Play) -> None:
    """A tenant may have thousands of pods that name hundreds of its claims."""

    async def scenario(world: Any) -> None:
        await yielding(world)
        await users_wait(world, *range(20))
        requester, state = (
            Requester("other", "borrower", {"cpu": 7000}, classes=frozenset([NIGHT])),
            world.controller.state,
        )
        assert "left: 1800m cpu are reserved" in room_shortage(state, "a", requester)
        few = calls(lambda: room_shortage(state, "a", requester))
        await users_wait(world, *range(20, 60))
        assert calls(lambda: room_shortage(state, "a", requester)) < 1.2 * few

    play(scenario)


def test_the_first_of_very_many_waiting_pods_that_name_very_many_claims_take_their_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that each of them names is compared at once, and nobody else is served meanwhile."""

    async def scenario(world: Any) -> None:
        monkeypatch.setattr(room, "MOST_TAKES", 5 * len(BUILDS))
        await yielding(world)

        def left() -> int:
            return sum(
                one["cpu"] for one in room_to_hold(world.controller.state, "a", lambda _: True).amounts.values()
            )

        nobody_waits = left()
        await users_wait(world, *range(3))
        assert left() == nobody_waits - 3 * 10
        await users_wait(world, *range(3, 20))
        assert left() == nobody_waits - 5 * 10
        await world.client.delete(PODS, "evil-0", "default")
        await world.settle()
        assert left() == nobody_waits - 5 * 10

    play(scenario)


def test_what_waiting_pods_cost_does_not_grow_with_the_resources_that_they_request(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await yielding(world)
        state, nowhere = world.controller.state, {"nodeSelector": {"no": "where"}, "schedulerName": "nobody"}
        await world.add_pod("few", claims=BUILDS, containers=requesting(cpu="10m"), **nowhere)
        await world.settle()
        few = calls(lambda: room_to_hold(state, "a", lambda _: True))
        await world.delete_pod("few")
        names = {f"x.y/{i}": "1" for i in range(200)}
        await world.add_pod("many", claims=BUILDS, containers=requesting(cpu="10m", **names), **nowhere)
        await world.settle()
        assert calls(lambda: room_to_hold(state, "a", lambda _: True)) < few + 10 * len(names)

    play(scenario)


def test_a_user_that_does_not_wait_any_more_has_each_borrower_asked_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, counted = counting()

    async def scenario(world: Any) -> None:
        await yielding(world)
        await users_wait(world, *range(5))
        for i in range(3):
            assert await borrower(world, f"borrower-{i}", cpu=f"{7480 + i}m") == ""
        monkeypatch.setattr(candidates, "room_shortage", counted)
        await world.client.delete(PODS, "evil-0", "default")
        await asyncio.sleep(1)
        assert 0 < len(looks) <= 2 * 3

    play(scenario)


def test_few_pods_of_a_namespace_are_asked_about_a_node_where_very_many_claims_reserve_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look compares all of these, and nobody else is served meanwhile. The other pods look a minute later."""
    looks, counted = counting()

    async def scenario(world: Any) -> None:
        monkeypatch.setattr(waiting, "MOST_COMPARED", 5 * len(BUILDS))
        await yielding(world)
        assert await task(world, "plain", cpu="10m") == "a"
        for i in range(20):
            await claim(world, f"work-{i}", mountPath=f"/work-{i}")
            pod = {"containers": requesting(cpu=f"{4000 + i}m")}
            await world.add_pod(f"work-{i}", claims=[f"work-{i}"], **pod)
        await world.settle()
        monkeypatch.setattr(candidates, "room_shortage", counted)
        await world.finish_pod("plain")
        await asyncio.sleep(1)
        assert len(looks) == 5

    play(scenario)


@pytest.mark.parametrize("schedulers", [(), ("default-scheduler",)], ids=["off", "on"])
def test_a_tenants_pod_that_looks_like_a_reservation_pod_has_no_node_looked_at(
    play: Play, schedulers: tuple[str, ...]
) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(reservation_schedulers=schedulers)
        await asyncio.sleep(1)
        nodes = ["a", *(f"n{i}" for i in range(1000))]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(nodes)}}
        gated = {"schedulingGates": [{"name": RESERVATION_GATE}], "affinity": affinity}
        await world.add_pod("evil", claims=["nothing"], **gated)
        await looked_at_no_room(world)
        await world.client.patch(PODS, "evil", {"metadata": {"labels": {"changed": "yes"}}}, "default")
        await looked_at_no_room(world)
        await world.delete_pod("evil")
        await looked_at_no_room(world)

    play(scenario)


async def looked_at_no_room(world: Any) -> None:
    """By the time when a change is known, and is not looked at yet, and when that is over."""
    queue = world.controller._base.queues.reservations
    await asyncio.sleep(ROOM_SECONDS / 2)
    assert queue.statistics().delayed == 0
    await asyncio.sleep(1)
