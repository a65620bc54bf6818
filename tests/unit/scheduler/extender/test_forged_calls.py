"""A caller may say of a pod what it likes: what the cache has of the pod counts. A pod that no call can place is
refused, and nothing is kept of the call."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from parley.scheduler.extender.binding import UNSEEN_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

AWAY = "parley-away"
GROUP = {"podGroupName": "gang"}


async def begin(world: World, devices: int) -> None:
    await world.add_node("a", devices=devices)
    await world.add_class()
    await world.add_template()
    await world.add_template("three", count=3)
    world.start_parley()
    await world.settle()


async def forged(world: World, pod: str, **spec: Any) -> Any:
    """A filter call about the pod, with another spec than it has."""
    asked = await world.question(pod, "a")
    return {**asked, "Pod": {**asked["Pod"], "spec": {**asked["Pod"]["spec"], **spec}}}


def preempting(asked: Any) -> Any:
    victims = {node: {"Pods": [], "NumPDBViolations": 0} for node in asked["NodeNames"]}
    return {"Pod": asked["Pod"], "NodeNameToMetaVictims": victims}


def entries(world: World) -> int:
    assert world.controller is not None
    assert world.controller.extender is not None
    return world.controller.extender.entries


@pytest.mark.parametrize("claims", [(), ("three",)], ids=["without claims", "with a claim"])
def test_a_pod_of_another_scheduler_is_refused_and_nothing_is_kept_of_the_call(
    play: Any, claims: tuple[str, ...]
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=2)
        await world.add_pod("p", *claims, schedulerName="somebody-elses")
        await world.settle()
        before = entries(world)
        for spec in ({}, {"schedulerName": AWAY}, {"schedulerName": AWAY, "resourceClaims": []}):
            asked = await forged(world, "p", **spec)
            answer = await world.ask("filter", asked)
            assert answer["NodeNames"] == []
            assert answer["FailedAndUnresolvableNodes"]["a"] == (
                "Parley: the pod is of scheduler somebody-elses, for whose pods Parley does not answer: to have "
                "it bind them, start the controller with --scheduler-name somebody-elses"
            )
            assert await world.ask("prioritize", asked) == []
            assert await world.ask("preempt", preempting(asked)) == {"NodeNameToMetaVictims": {}}
        assert entries(world) == before

    play(scenario)


def test_a_pod_of_another_scheduler_that_the_cache_does_not_have_leaves_nothing_either(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=2)
        await world.add_pod("p", "one", schedulerName="somebody-elses")
        await world.settle()
        asked = await world.question("p", "a")
        await world.delete_pod("p")
        await world.settle()
        assert (await world.ask("filter", asked))["NodeNames"] == []
        assert (await world.ask("preempt", preempting(asked)))["NodeNameToMetaVictims"] == {}
        assert entries(world) == 0

    play(scenario)


def test_a_pod_that_is_bound_already_is_refused_and_nothing_is_kept_of_the_call(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=2)
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        before = entries(world)
        answer = await world.ask("filter", await forged(world, "p", nodeName=""))
        assert answer["FailedAndUnresolvableNodes"] == {"a": "Parley: the pod is bound already"}
        assert entries(world) == before

    play(scenario)


@pytest.mark.parametrize("claims", [(), ("one",)], ids=["without claims", "with another claim"])
def test_a_pod_gets_the_answer_that_its_own_claims_get(play: Any, claims: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=2)
        await world.add_pod("another", *claims, schedulerName="nobody")
        await world.add_pod("p", "three", schedulerName=AWAY)
        await world.settle()
        others = (await world.question("another", "a"))["Pod"]["spec"].get("resourceClaims", [])
        answer = await world.ask("filter", await forged(world, "p", resourceClaims=others))
        assert answer["NodeNames"] == []
        assert answer == await world.ask("filter", await world.question("p", "a"))

    play(scenario)


def test_a_pod_of_a_group_is_not_bound_if_its_filter_call_hid_that(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, devices=2)
        await world.add_pod("p", "one", schedulerName=AWAY, schedulingGroup=GROUP)
        await world.settle()
        answer = await world.ask("filter", await forged(world, "p", schedulingGroup=None))
        assert "spec.schedulingGroup" in answer["FailedAndUnresolvableNodes"]["a"]
        uid = (await world.pod("p")).metadata.uid
        bind = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "a"}
        assert "spec.schedulingGroup" in (await world.ask("bind", bind))["Error"]
        assert await world.node_of("p") == ""

    play(scenario)


def test_a_bind_with_the_uid_of_another_pod_does_not_keep_that_pod_from_being_reconciled(play: Any) -> None:
    """It waits for its own pod, which Parley's watch may show yet."""

    async def scenario(world: World) -> None:
        await begin(world, devices=0)
        await world.add_pod("p", "one", schedulerName="default-scheduler")
        await world.settle()
        uid = (await world.pod("p")).metadata.uid
        bind = {"PodName": "unseen", "PodNamespace": "default", "PodUID": uid, "Node": "a"}
        waiting = asyncio.create_task(world.ask("bind", bind))
        await asyncio.sleep(1)
        await world.publish("a", ["gpu-0"])
        await asyncio.sleep(UNSEEN_SECONDS - 2)
        assert not waiting.done()
        assert await world.node_of("p") == "a"
        assert (await waiting)["Error"] == "the pod is gone"

    play(scenario)
