"""Claim preemption respects disruption budgets: their pods are spared, and nobody else is evicted in vain."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import SlowEvictions, begin, budget, hold

from parley.api.resources import POD_SCHEDULINGS, PODS, TEMPLATES
from parley.kube.memory.evictions import BUDGETS
from parley.scheduler.claim_preemption import SPARED_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_a_budget_spares_one_and_another_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.client.patch(PODS, "lower", {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 0, app="spared")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_a_budget_spares_all_the_pod_waits_until_it_allows_one(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(SPARED_SECONDS + 5)
        assert evicted == []
        assert (await world.scheduling("urgent")).status.message == (
            "0 of 1 node is available: node a: claim gpu-0: 0 of 1 device free, 1 wanted. Remedy: free resources, "
            "request less, or add nodes that have what is requested. Pod default/low could not be evicted: "
            "Cannot evict pod as it would violate the pod's disruption budget."
        )
        await world.client.patch(
            BUDGETS, "spares", {"status": {"disruptionsAllowed": 1}}, "default", subresource="status"
        )
        await world.settle(SPARED_SECONDS + 5)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_a_pod_that_a_budget_spares_is_named_in_its_own_namespace_alone(play: Play) -> None:
    """Also if a pod of that namespace got its message first."""

    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(SPARED_SECONDS / 2)
        for kind, name in ((TEMPLATES, "one"), (PODS, "urgent")):
            like = await world.client.get(kind.untyped(), name, "default")
            body = {"metadata": {"name": name}, "spec": like["spec"]}
            await world.client.create(kind.untyped(), body, "other")
        await world.settle(SPARED_SECONDS / 4)

        own, foreign = [await world.client.get(POD_SCHEDULINGS, "urgent", name) for name in ("default", "other")]
        why = "could not be evicted: Cannot evict pod as it would violate the pod's disruption budget."
        assert own.status.message.endswith(f"Pod default/low {why}")
        assert foreign.status.message.endswith(f"A pod elsewhere {why}")

    play(scenario)


def test_who_waits_beside_a_pod_whose_victim_is_spared_is_not_written_to_again_and_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.add_pod("waiting", "one", priority=1)
        await world.settle(SPARED_SECONDS - 5)
        before = (await world.scheduling("waiting")).metadata.resource_version
        await world.settle(10 * SPARED_SECONDS)
        assert (await world.scheduling("waiting")).metadata.resource_version == before
        assert evicted == []

    play(scenario)


def test_nobody_is_evicted_where_a_budget_spares_one_of_two_that_would_have_to_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.client.patch(PODS, "low", {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 0, app="spared")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(300)
        assert evicted == []

    play(scenario)


def test_two_plans_do_not_share_the_last_disruption_that_a_budget_allows(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvictions(world.server.client()), a=2, b=2)
        await hold(world, one=0, two=1, three=0, four=1)
        assert await world.node_of("one") == await world.node_of("two") != await world.node_of("three")
        for name in ("two", "four"):
            await world.client.patch(PODS, name, {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 1, app="spared")
        for name in ("urgent", "as-urgent"):
            await world.add_pod(name, "two", priority=10)
        await world.settle(60)
        assert evicted in (["one", "two"], ["three", "four"])

    play(scenario)
