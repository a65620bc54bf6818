"""Pods that were bound, started and deleted by force before a controller saw any of it: their nodes may have
prepared what they used, and are asked before it is handed on."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from parley.api.resources import PODS
from parley.kube.client import Call, Client, Expired, RawEvent

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class LateNews(Client):
    """Tells nothing of pods after `stop` until `go_on`; with `expired` the watch ends then, and pods are listed.

    With `until_bound` it stops by itself where it would tell that a pod is bound.
    """

    def __init__(self, client: Client, *, expired: bool, until_bound: bool = False) -> None:
        super().__init__(client)
        self._expired = expired
        self._until_bound = until_bound
        self._late = False
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    def stop(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if self._until_bound and call.resource == PODS and _is_bound(event):
                self._until_bound = False
                self.stop()
            if call.resource == PODS and not self._goes_on.is_set():
                await self._goes_on.wait()
                if self._expired:
                    raise Expired(410, "Expired", "too old resource version")
                self._late = True
            if call.resource == PODS and self._late:
                await asyncio.sleep(0.1)  # one after the other
            yield event


def _is_bound(event: RawEvent) -> bool:
    return bool(orjson.loads(event.object).get("spec", {}).get("nodeName"))


async def one_device(world: World, client: Client, **class_: Any) -> None:
    world.start_parley(client)
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_class("for-several", shareable=True)
    await world.add_claim("common", "for-several")
    await world.add_claim("disk")
    await world.settle()


async def runs_and_goes(world: World, name: str) -> None:
    """The pod has started, and is gone while its node does nothing."""
    await asyncio.sleep(5)
    assert (await world.pod(name)).status.phase == "Running"
    world.kubelets.stop("a")
    await world.force_delete(name)
    await asyncio.sleep(1)


async def waits_for_the_node(world: World, name: str) -> None:
    """The pod gets the device only when the node has unprepared it."""
    await world.settle()
    assert await world.node_of(name) == ""
    world.kubelets.start("a")
    await world.settle()
    assert await world.node_of(name) == "a"


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("claims", [(), ("disk",)], ids=["generated", "named"])
def test_a_pod_whose_binding_fell_between_two_lists_is_asked_about(play: Any, claims: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        news = LateNews(world.server.client(), expired=True, until_bound=True)
        await one_device(world, news)
        templates = () if claims else ("one",)
        await world.add_pod("old", *templates, claims=claims)
        await runs_and_goes(world, "old")
        await world.add_pod("new", *templates, claims=claims)
        news.go_on()
        await waits_for_the_node(world, "new")

    play(scenario)


@pytest.mark.parametrize("first_ends", ["before", "after"])
@pytest.mark.parametrize("expired", [False, True], ids=["watched late", "listed"])
def test_a_pod_that_its_scheduler_let_in_is_asked_about(play: Any, expired: bool, first_ends: str) -> None:
    """The controller hears of the pod's whole life at once; the claim's other user has ended meanwhile."""

    async def scenario(world: World) -> None:
        news = LateNews(world.server.client(), expired=expired)
        await one_device(world, news)
        await world.add_pod("first", claims=["common"])
        if first_ends == "after":
            await world.add_pod("second", claims=["common"], schedulingGates=[{"name": "wait"}])
        await world.settle()
        await world.add_pod("new", "one")
        await world.settle()
        news.stop()
        if first_ends == "before":
            await world.finish_pod("first")
            await world.add_pod("second", claims=["common"])
        else:
            await world.client.patch(PODS, "second", {"spec": {"schedulingGates": None}}, "default")
        await runs_and_goes(world, "second")
        if first_ends == "after":
            await world.finish_pod("first")
        news.go_on()
        await waits_for_the_node(world, "new")

    play(scenario)


def test_a_pod_that_was_let_in_and_went_while_nobody_led_is_asked_about(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, world.server.client())
        await world.add_pod("first", claims=["common"])
        await world.settle()
        await world.crash()
        await world.add_pod("second", claims=["common"])
        await runs_and_goes(world, "second")
        world.start_parley()
        await asyncio.sleep(5)
        await world.finish_pod("first")
        await world.add_pod("new", "one")
        await waits_for_the_node(world, "new")

    play(scenario)


def test_a_pod_that_came_and_went_between_two_lists_is_asked_about(play: Any) -> None:
    """Nobody ever reports it: the claim's nodes are asked when its last known pod has ended."""

    async def scenario(world: World) -> None:
        news = LateNews(world.server.client(), expired=True)
        await one_device(world, news)
        await world.add_pod("first", claims=["common"])
        await world.settle()
        news.stop()
        await world.add_pod("second", claims=["common"])
        await runs_and_goes(world, "second")
        await world.finish_pod("first")
        await world.add_pod("new", "one")
        news.go_on()
        await waits_for_the_node(world, "new")

    play(scenario)
