"""Nothing is remembered of pods that are gone, whoever released what they held."""

import asyncio
from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, EVENTS, PODS
from parley.kube.client import Call, Client, Invalid
from parley.scheduler.controller import Controller


@pytest.mark.parametrize("bound", [True, False])
def test_nothing_is_remembered_of_a_pod_whose_claims_others_released_when_it_went(play: Play, bound: bool) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        scheduler: dict[str, Any] = {} if bound else {"schedulerName": "nobody"}
        await world.add_pod("p", "one", **scheduler)
        await world.settle()
        assert world.controller is not None
        reconciler = world.controller._parts.reconciler
        pod = world.controller.cluster.pod(("default", "p"))
        assert pod is not None
        assert bool(pod.spec.node_name) is bound
        reconciler.pod_gone(pod)
        for holding in list(world.ledger):
            world.ledger.drop(holding)
        await world.force_delete("p")
        await world.settle()
        assert reconciler._forced_on == {}
        assert reconciler._never_bound == set()

    play(scenario)


async def after_a_pod_came_and_went(world: World, template: str) -> Controller:
    """The controller. The pod is deleted by force after two seconds."""
    await world.settle(5)
    await world.add_pod("p", template)
    await asyncio.sleep(2)
    await world.force_delete("p")
    await world.settle(100)
    assert world.controller is not None
    return world.controller


class Refused(Client):
    """Allocations are refused after a while."""

    async def request(self, call: Call) -> bytes:
        if call.resource == BUILTIN_CLAIMS and call.subresource == "status":
            await asyncio.sleep(5)
            raise Invalid(422, "Invalid", "no")
        return await super().request(call)


def test_nothing_is_remembered_of_a_pod_that_went_while_its_allocation_was_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(Refused(world.server.client()))
        controller = await after_a_pod_came_and_went(world, "one")
        assert len(controller._parts.reconciler._pods) == 0

    play(scenario)


class SlowAnswers(Client):
    """The answer to a read of a pod takes three seconds on its way back."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.resource == PODS and call.verb == "get":
            await asyncio.sleep(3)
        return answer


def test_a_pod_that_went_before_its_allocation_counts_for_no_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(placement="Exact")
        await world.add_template()
        world.start_parley(SlowAnswers(world.server.client()))
        controller = await after_a_pod_came_and_went(world, "one")
        assert not controller.cluster.usage._shares
        assert len(world.ledger) == 0

    play(scenario)


class Slow(Client):
    """Writes of claims take five seconds, when that is asked for."""

    slow = False

    async def request(self, call: Call) -> bytes:
        if self.slow and call.writes and call.resource == CLAIMS:
            await asyncio.sleep(5)
        return await super().request(call)


def test_nothing_is_reported_of_a_pod_that_went_while_what_another_of_its_name_held_was_released(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_claim("mine")
        client = Slow(world.server.client())
        world.start_parley(client)
        await world.add_pod("p", claims=["mine"])
        await world.settle(5)
        client.slow = True
        await world.force_delete("p")
        await world.add_pod("p", claims=["mine"])
        await asyncio.sleep(2)
        await world.force_delete("p")
        await world.settle(100)
        assert world.controller is not None
        assert world.controller._parts.reconciler._pods.reporter._pod_metrics._pending == {}

    play(scenario)


class SlowEvents(Client):
    """Writes of events take five seconds."""

    async def request(self, call: Call) -> bytes:
        if call.writes and call.resource.plural == EVENTS.plural:
            await asyncio.sleep(5)
        return await super().request(call)


@pytest.mark.scheduling_paths("extender")
def test_nothing_is_remembered_of_a_pod_that_went_while_its_failed_bind_was_reported(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        trouble = slow(0.0, then=RuntimeError("no"))
        shelf = ShelfDriver(Behaviour(other=1, trouble=trouble))
        world.start_parley(SlowEvents(world.server.client()), drivers=[shelf])
        controller = await after_a_pod_came_and_went(world, "shelf")
        assert len(controller._parts.reconciler._pods) == 0

    play(scenario)
