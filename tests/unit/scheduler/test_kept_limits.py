"""What a class's limits leave to a namespace is kept, too, for the pod that others are evicted for."""

import asyncio
from typing import Any

import pytest
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World
from tests.unit.scheduler.killed import Play

from parley.api.resources import PODS, TEMPLATES

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def add_victim(world: World) -> None:
    """A pod of another namespace has the only device of node a."""
    body = {"metadata": {"name": "one"}, "spec": {"spec": {"resourceClassName": "gpu"}}}
    await world.client.create(TEMPLATES, body, "other")
    entries = [{"name": "c", "resourceClaimTemplateName": "one"}]
    used = [{"name": "main", "image": "none", "resources": {"claims": [{"name": "c"}]}}]
    scheduler = {"schedulerName": SECOND_SCHEDULER} if world.scheduling_path == "extender" else {}
    spec: dict[str, Any] = {"resourceClaims": entries, "containers": used, "priority": 1, **scheduler}
    await world.client.create(PODS, {"metadata": {"name": "victim"}, "spec": spec}, "other")
    await world.settle()
    assert (await world.client.get(PODS, "victim", "other")).spec.node_name == "a"


async def preempting(world: World) -> None:
    """Pod urgent waits until the victim has left. Its namespace may hold one claim; node b has a device, too."""
    await world.add_node("a", devices=1)
    await world.add_class(preemption="LowerPriority", limits=[{"claims": 1}])
    await world.add_template()
    world.start_parley()
    await world.settle()
    await add_victim(world)
    world.kubelets.stop("a")
    await world.add_pod("urgent", "one", priority=10, nodeSelector={"kubernetes.io/hostname": "a"})
    await world.settle()
    assert (await world.scheduling("urgent")).status.waiting_for == "Preempting"
    await world.add_node("b", devices=1)
    await world.add_pod("low", "one", priority=5)
    await world.settle()


def test_no_pod_of_lower_priority_uses_the_limit_up_meanwhile(play: Play) -> None:
    async def scenario(world: World) -> None:
        await preempting(world)
        status = (await world.scheduling("low")).status
        assert (await world.node_of("low"), status.waiting_for) == ("", "LimitReached")
        assert status.message.startswith(
            "namespace default holds 1 of 1 claims that class gpu allows it, 1 of them kept for pods that others "
            "are evicted for, 1 more wanted: "
        )
        world.kubelets.start("a")
        await world.settle()

        assert await world.node_of("urgent") == "a"
        assert await world.node_of("low") == ""

    play(scenario)


def test_it_is_left_to_others_when_the_pod_is_gone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await preempting(world)
        await world.delete_pod("urgent")
        await world.settle()

        assert await world.node_of("low") == "b"

    play(scenario)


def test_an_immediate_claim_gets_neither_the_limit_nor_what_the_victim_leaves(play: Play) -> None:
    async def scenario(world: World) -> None:
        await preempting(world)
        await world.delete_pod("low")
        await world.add_class("other", preemption="LowerPriority")
        await world.add_claim("limited", mode="Immediate")
        await world.add_claim("b", "other", mode="Immediate")
        await world.add_claim("a", "other", mode="Immediate")
        await world.settle()
        world.kubelets.start("a")
        await world.settle()

        assert await world.node_of("urgent") == "a"
        allocated = {
            name: (await world.claim(name)).status.allocation is not None for name in ("limited", "a", "b")
        }
        assert allocated == {"limited": False, "a": False, "b": True}

    play(scenario)


@pytest.mark.parametrize("priority", [10, 20])
def test_a_pod_of_at_least_that_priority_may(play: Play, priority: int) -> None:
    async def scenario(world: World) -> None:
        await preempting(world)
        await world.add_pod("higher", "one", priority=priority)
        await asyncio.sleep(30)

        assert await world.node_of("higher") == ("b" if priority > 10 else "")

    play(scenario)
