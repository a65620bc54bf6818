"""Pods that wait cost nothing: verdicts are kept as long as nothing changes, and words as long as the phase is."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.conftest import AWAY
from tests.unit.scheduler.extender.test_unknown_pods import extender_of
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, PODS, Resource
from parley.control.claims.podclaims import Problem
from parley.explain.explaining import explain
from parley.kube.client import Call, Client, RawEvent, ServerError
from parley.scheduler.extender.rejections import Rejection
from parley.simulate.cluster import loop_clock

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")


async def begin(world: World, nodes: int = 3, client: Any = None, **behaviour: Any) -> Behaviour:
    shelf = Behaviour(**{"other": 1, **behaviour})
    for i in range(nodes):
        await world.add_node(f"n{i}")
    await add_shelf_class(world)
    world.start_parley(client, drivers=[ShelfDriver(shelf)])
    return shelf


async def fill(world: World, nodes: int = 3) -> None:
    for i in range(nodes):
        await world.add_pod(f"user{i}", "shelf")
        await world.settle()


class LateNews(Client):
    """News of one kind come some seconds late."""

    def __init__(self, client: Any, resource: Resource[Any]) -> None:
        super().__init__(client)
        self._resource = resource

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if call.resource == self._resource:
                await asyncio.sleep(5)
            yield event


class InCirclesError(BaseException):
    """Ends the controller: time would never pass."""


def end_circles(call: NumberedCall) -> None:
    if call.write > 100:
        raise InCirclesError


def condition(pod: Any) -> tuple[str, str]:
    return next((c.reason, c.message) for c in pod.status.conditions if c.type == "PodScheduled")


def test_300_waiting_pods_and_unrelated_changes_ask_no_driver(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = FaultClient(world.server.client())
        shelf = await begin(world, client=client)
        await fill(world)
        for i in range(300):
            await world.add_pod(f"p{i:03}", "shelf")
        await world.settle()
        asked, filtered, writes = shelf.calls["viable"], world.calls.count["filter"], client.writes
        for i in range(50):
            await world.add_pod(f"other{i}", schedulerName="default-scheduler")
            await asyncio.sleep(0.1)
        await world.settle()
        assert world.calls.count["filter"] - filtered > 300 * 50
        assert shelf.calls["viable"] - asked <= 10
        assert client.writes - writes <= 10

    play(scenario)


def test_a_waiting_pod_is_not_asked_about_again_while_nothing_happens(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await fill(world)
        for i in range(20):
            await world.add_pod(f"p{i}", "shelf")
        await world.settle()
        assert 20 <= world.calls.count["filter"] <= 20 * 8
        before, version = world.calls.count["filter"], world.server.resource_version
        await asyncio.sleep(600)
        assert world.calls.count["filter"] == before
        assert world.server.resource_version == version

    play(scenario)


def test_the_words_in_a_pods_condition_stay_the_same_for_a_phase(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await fill(world)
        await world.add_pod("p", "shelf")
        await world.settle()
        said = condition(await world.pod("p"))
        assert said[0] == "Unschedulable"
        assert "Parley" in said[1]
        for i in range(10):
            await world.add_node(f"full{i}")
            await world.client.patch(NODES, f"full{i}", {"spec": {"unschedulable": True}})
            await world.settle()
        now = condition(await world.pod("p"))
        assert (now[0], now[1].partition("node(s) cordoned")[0][:20]) == (said[0], now[1][:20])
        assert world.calls.count["filter"] < 150

    play(scenario)


def test_a_pod_gets_in_within_a_second_once_a_device_is_free(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await fill(world)
        await world.add_pod("p", "shelf")
        await world.settle()
        await world.finish_pod("user1")
        await asyncio.sleep(1.5)
        assert await world.node_of("p") == "n1"

    play(scenario)


def test_a_pod_gets_in_when_only_its_driver_knows_that_something_changed(play: Any) -> None:
    """No event of a pod or node tells the scheduler: the path has to."""

    async def scenario(world: World) -> None:
        await begin(world, nodes=1)
        await world.add_claim("disk", "shelf", "Immediate")
        await world.settle()
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == ""
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(2)
        assert await world.node_of("p") == "n0"

    play(scenario)


def refusing_touches(world: World, times: int) -> FaultClient:
    """The first so many changes of pods fail."""
    left = [times]

    def refuse(call: NumberedCall) -> None:
        if call.resource == PODS and call.verb == "patch" and left[0] > 0:
            left[0] -= 1
            raise ServerError(500, "InternalError", "out of order")

    return FaultClient(world.server.client(), before=refuse)


def test_a_scheduler_is_made_to_look_again_though_the_first_try_fails(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, nodes=1, client=refusing_touches(world, 2))
        await world.add_claim("disk", "shelf", "Immediate")
        await world.settle()
        await world.add_pod("p", "shelf")
        await world.settle()
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(2)
        assert await world.node_of("p") == "n0"

    play(scenario)


def test_a_new_leader_makes_schedulers_look_again_though_the_first_try_fails(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world)
        await world.add_pod("p", "shelf", schedulerName=AWAY)
        await world.settle()
        before = (await world.pod("p")).metadata.resource_version
        await world.crash()
        world.start_parley(refusing_touches(world, 2), [ShelfDriver(shelf)])
        await world.settle()
        assert (await world.pod("p")).metadata.resource_version != before

    play(scenario)


@pytest.mark.parametrize("driver", [ShelfDriver.name, "elsewhere.example.com"])
def test_a_claim_that_is_seen_late_makes_no_circles(play: Any, driver: str) -> None:
    async def scenario(world: World) -> None:
        client = FaultClient(LateNews(world.server.client(), BUILTIN_CLAIMS), before=end_circles)
        await begin(world, client=client)
        await world.add_class("other", driverName=driver)
        await world.add_template("other", "other")
        await world.settle()
        before = client.writes
        await world.add_pod("p", "other")
        await asyncio.sleep(4)
        assert client.writes - before <= 3
        await asyncio.sleep(10)
        assert bool(await world.node_of("p")) == (driver == ShelfDriver.name)

    play(scenario)


def test_a_pod_waits_in_its_own_right_though_news_of_one_before_of_its_name_come_late(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=LateNews(world.server.client(), PODS))
        await world.settle()
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        await world.force_delete("p")
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        await world.add_claim("disk", "shelf")
        await asyncio.sleep(20)
        assert await world.node_of("p")

    play(scenario)


def test_pods_that_wait_find_their_place_after_a_restart_of_the_controller(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world)
        await fill(world)
        await world.add_pod("p", "shelf")
        await world.settle()
        await restart(world, [ShelfDriver(shelf)], after=5)
        await world.settle()
        assert await world.node_of("p") == ""
        await world.finish_pod("user2")
        await asyncio.sleep(3)
        assert await world.node_of("p") == "n2"

    play(scenario)


def test_a_pod_gets_in_where_the_first_that_wants_the_same_may_not(play: Any) -> None:
    """Its scheduler leaves a node out for the first one, which looks alike to Parley."""

    async def scenario(world: World) -> None:
        term = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await begin(world, nodes=2)
        spec = {"nodeName": "n0", "containers": [{"name": "main", "image": "none"}]}
        await world.create(
            PODS,
            {"metadata": {"name": "noisy", "namespace": "default", "labels": {"app": "noisy"}}, "spec": spec},
        )
        await world.add_pod("user", "shelf", nodeName="n1")
        await world.settle()
        await world.add_claim("disk", "shelf", "Immediate")
        await world.settle()
        for name, affinity in (("apart", apart), ("alike", {})):
            await world.add_pod(name, "shelf", affinity=affinity)
            await world.settle()
        assert await world.node_of("alike") == ""

        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert await world.node_of("alike") == "n0"
        assert await world.node_of("apart") == ""

    play(scenario)


def test_a_pod_that_was_put_off_for_a_moment_is_tried_again_though_something_else_is_in_its_way_by_then(
    play: Any,
) -> None:
    """Else it would not hear when that is mended: what is just changing has no topics."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("p", claims=["none"], schedulerName=AWAY)
        await world.settle()
        pod, extender = await world.pod("p"), extender_of(world)
        problem = Problem(reasons.ALLOCATION_FAILED, "what the pod held is being released", (), True)
        extender._rejections.add(pod, Rejection(extender._sets.of(["n0"]), b"{}", problem, ()))
        await world.settle(10)
        assert (await world.pod("p")).metadata.resource_version != pod.metadata.resource_version

    play(scenario)


def test_explain_says_what_is_known_of_nodes_that_the_scheduler_does_not_propose(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, nodes=4)
        taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
        await world.client.patch(NODES, "n1", {"spec": {"unschedulable": True}})
        await world.client.patch(NODES, "n2", {"spec": {"taints": [taint]}})
        small = {"allocatable": {"cpu": "10m", "memory": "16Gi", "pods": "110"}}
        await world.client.patch(NODES, "n3", {"status": small}, subresource="status")
        await fill(world, 1)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        await world.add_pod("p", "shelf", containers=[container])
        await world.settle()

        explained = await explain(world.client, loop_clock()(), "default", "p")

        assert {node.node: node.fit for node in explained.nodes} == {
            "n0": "",
            "n1": "cordoned",
            "n2": "taint team:NoSchedule, which the pod does not tolerate",
            "n3": "too little cpu left",
        }

    play(scenario)
