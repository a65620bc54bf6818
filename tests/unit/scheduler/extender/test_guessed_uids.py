"""Calls that name a pod's UID under another name, or pods that do not exist: nobody else loses anything."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.held_watch import HeldWatch

from parley.api.resources import PODS
from parley.scheduler.extender import unknown
from parley.scheduler.extender.posting import LOOK_AGAIN
from parley.scheduler.extender.unknown import FORGET_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

AWAY = "parley-away"

TOO_MANY = (
    "Parley: Parley's watch of pods has not shown 2 pods that were asked about, which is the most at a time: the "
    "scheduler tries again"
)


async def begin(world: World, devices: int, client: Any = None) -> None:
    await world.add_node("a", devices=devices)
    await world.add_class()
    await world.add_template()
    world.start_parley(client)
    await world.settle()


async def waiting(world: World, *names: str) -> None:
    """Pods about which only the test asks."""
    for name in names:
        await world.add_pod(name, "one", schedulerName=AWAY)
    await world.settle()


async def guessed(world: World, pod: str, namespace: str = "default") -> Any:
    """A filter call about a pod that does not exist, with the UID of this one."""
    asked = await world.question(pod, "a")
    return {**asked, "Pod": {**asked["Pod"], "metadata": named(asked, "guess", namespace)}}


def named(asked: Any, name: str, namespace: str) -> Any:
    return {**asked["Pod"]["metadata"], "name": name, "namespace": namespace}


def preempting(asked: Any) -> Any:
    victims = {node: {"Pods": [], "NumPDBViolations": 0} for node in asked["NodeNames"]}
    return {"Pod": asked["Pod"], "NodeNameToMetaVictims": victims}


async def passes(world: World, pod: str) -> bool:
    answer = await world.ask("filter", await world.question(pod, "a"))
    return bool(answer["NodeNames"])


def extender_of(world: World) -> Any:
    assert world.controller is not None
    assert world.controller.extender is not None
    return world.controller.extender


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize("namespace", ["default", "elsewhere"])
def test_a_guessed_uid_does_not_end_the_reservation_of_its_pod(play: Any, verb: str, namespace: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=1)
        await waiting(world, "p", "q")
        asked = await guessed(world, "p", namespace)
        uid = asked["Pod"]["metadata"]["uid"]
        assert await passes(world, "p")
        if verb == "bind":
            bind = {"PodName": "guess", "PodNamespace": namespace, "PodUID": uid, "Node": "b"}
            task = asyncio.create_task(world.ask("bind", {**bind, "Node": "a"}))
            assert (await world.ask("bind", bind))["Error"]
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif verb == "filter":
            answer = await world.ask("filter", {**asked, "NodeNames": []})
            assert answer["Error"] == f"Parley: UID {uid} in the scheduler's call is that of another pod"
        else:
            assert await world.ask("preempt", preempting(asked)) == {"NodeNameToMetaVictims": {}}
        assert not await passes(world, "q")

    play(scenario)


def test_a_guessed_uid_takes_nothing_and_leaves_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=1)
        await waiting(world, "p", "q")
        before = extender_of(world).entries
        asked = await guessed(world, "p")
        assert (await world.ask("filter", asked))["NodeNames"] == []
        assert await world.ask("prioritize", asked) == []
        assert extender_of(world).entries == before
        assert await passes(world, "q")

    play(scenario)


def test_what_is_forgotten_of_a_guess_is_not_forgotten_of_the_pod_that_has_the_uid(play: Any) -> None:
    """The guess comes before Parley's watch shows the pod."""

    async def scenario(world: World) -> None:
        client = HeldWatch(world.server.client(), PODS)
        await begin(world, devices=0, client=client)
        client.open.clear()
        await waiting(world, "p")
        assert not (await world.ask("filter", await guessed(world, "p")))["NodeNames"]
        client.open.set()
        await world.settle(1)
        assert not await passes(world, "p")
        await asyncio.sleep(FORGET_SECONDS + 1)
        assert LOOK_AGAIN not in (await world.pod("p")).metadata.annotations
        await world.publish("a", ["gpu-0"])
        await asyncio.sleep(1)
        assert LOOK_AGAIN in (await world.pod("p")).metadata.annotations

    play(scenario)


def test_more_unknown_pods_than_are_answered_get_an_error_and_leave_nothing(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "MOST_UNKNOWN", 2)

    async def scenario(world: World) -> None:
        await begin(world, devices=0)
        await waiting(world, "p")
        asked = await world.question("p", "a")
        gone = [
            {**asked, "Pod": {**asked["Pod"], "metadata": {**named(asked, f"gone{i}", "default"), "uid": f"u{i}"}}}
            for i in range(4)
        ]
        for one in gone[:2] * 2:
            assert (await world.ask("filter", one))["Error"] == ""
        full = extender_of(world).entries
        for one in gone[2:]:
            assert (await world.ask("filter", one))["Error"] == TOO_MANY
            assert await world.ask("preempt", preempting(one)) == {"NodeNameToMetaVictims": {}}
        assert extender_of(world).entries == full
        assert (await world.ask("filter", asked))["Error"] == ""  # of pods that Parley knows there is no limit
        await asyncio.sleep(FORGET_SECONDS + 1)
        assert (await world.ask("filter", gone[2]))["Error"] == ""

    play(scenario)


def test_a_pod_that_was_one_too_many_is_tried_again_once_it_is_known(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler whose own filters reject it everywhere does not ask again by itself."""
    monkeypatch.setattr(unknown, "MOST_UNKNOWN", 0)

    async def scenario(world: World) -> None:
        client = HeldWatch(world.server.client(), PODS)
        await begin(world, devices=0, client=client)
        client.open.clear()
        await waiting(world, "p")
        assert await world.ask("preempt", preempting(await world.question("p", "a"))) == {
            "NodeNameToMetaVictims": {}
        }
        client.open.set()
        await asyncio.sleep(10)
        assert LOOK_AGAIN in (await world.pod("p")).metadata.annotations

    play(scenario)


def test_few_forgotten_pods_are_remembered(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "MOST_UNKNOWN", 0)
    monkeypatch.setattr(unknown, "MOST_FORGOTTEN", 3)

    async def scenario(world: World) -> None:
        await begin(world, devices=0)
        await waiting(world, "p")
        asked = await world.question("p", "a")
        for i in range(5):
            metadata = {**named(asked, f"gone{i}", "default"), "uid": f"u{i}"}
            await world.ask("filter", {**asked, "Pod": {**asked["Pod"], "metadata": metadata}})
        assert [user.name for user in extender_of(world)._unknown._forgotten] == ["gone2", "gone3", "gone4"]

    play(scenario)
