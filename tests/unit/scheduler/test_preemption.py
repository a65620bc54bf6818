"""The scheduler's own preemption for pods with claims: it evicts where Parley allocated, and never in vain."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.grump import APART, add_grump

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.kube.client import Call, Client, RawEvent
from parley.kube.informer import Informer
from parley.scheduler.attempts import PATIENCE, TERMINATING_SECONDS
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

WATCHING: set[asyncio.Task[None]] = set()


async def begin(world: World, **devices: int) -> list[str]:
    """Nodes of 8 CPUs with so many devices. Returns the names of the pods that were evicted, as they are."""
    for name, count in devices.items():
        await world.add_node(name, count)
    await world.add_class()
    await world.add_template("one")
    world.start_parley()
    evicted: list[str] = []

    def changed(_: Pod | None, now: Pod | None) -> None:
        if now is not None and now.metadata.deletion_timestamp and now.metadata.name not in evicted:
            evicted.append(now.metadata.name)

    WATCHING.add(asyncio.create_task(Informer(world.client, PODS, on_change=changed).run()))
    await world.settle(5)
    return evicted


async def fill(world: World, name: str, on: str, priority: int = 0, amount: int = 6) -> None:
    """A pod without claims that has most of the node's CPUs."""
    await world.add_pod(name, nodeName=on, priority=priority, containers=requesting(cpu=amount))


def test_pods_without_claims_are_evicted_for_one_with_a_claim(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await fill(world, "ordinary", "a")
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle()
        assert evicted == ["ordinary"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_another_node_has_room_but_no_device_the_claim_is_cleared_and_allocated_again(play: Play) -> None:
    """The scheduler takes the allocation back before it evicts: another node fits but for the claim."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=0)
        await fill(world, "ordinary", "a")
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(60)
        assert evicted == ["ordinary"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_the_claim_is_cleared_before_others_are_evicted_these_are_the_only_ones(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=0, c=1)
        await fill(world, "on-a", "a")
        await fill(world, "on-c", "c")
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(60)
        assert evicted == [f"on-{await world.node_of('urgent')}"]

    play(scenario)


def test_while_pods_take_long_to_leave_the_pod_goes_to_another_node_that_becomes_viable(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1, b=0)
        await fill(world, "ordinary", "a")
        await world.settle(2)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await asyncio.sleep(30)
        assert (await world.scheduling("urgent")).status.waiting_for == "Preempting"
        await world.publish("b", ["gpu-0"])
        await asyncio.sleep(15)
        assert await world.node_of("urgent") == "b"

    play(scenario)


class LateClaims(Client):
    """A watch of built-in claims that is a moment behind that of pods."""

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if call.resource == BUILTIN_CLAIMS:
                await asyncio.sleep(0.05)
            yield event


@pytest.mark.parametrize("late", [False, True])
def test_where_these_are_gone_at_once_nobody_is_evicted_on_another_node(play: Play, late: bool) -> None:
    """The node that the scheduler refused a moment ago fits by then, and it is the only one that does."""

    async def scenario(world: World) -> None:
        for name, count in {"a": 1, "b": 0, "c": 1}.items():
            await world.add_node(name, count)
        await world.add_class()
        await world.add_template("one")
        client = world.server.client()
        world.start_parley(LateClaims(client) if late else client)
        await world.settle(5)
        for name in ("a", "c"):
            spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": requesting(cpu=6)}
            await world.add_pod(f"on-{name}", nodeName=name, **spec)
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(60)
        node = await world.node_of("urgent")
        left = {pod.metadata.name for pod in (await world.client.list(PODS)).items}
        assert left == {"urgent", "on-a", "on-c"} - {f"on-{node}"}

    play(scenario)


async def take_back(world: World) -> None:
    """As a scheduler does that refuses the node of the only claim."""
    (mirror,) = await world.mirrors()
    assert mirror.status.allocation is not None
    await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None, "devices": None})
    await asyncio.sleep(1)


def test_a_node_that_the_scheduler_refuses_later_is_not_taken_for_one_where_it_evicts(play: Play) -> None:
    """It evicted nobody where it would have had to, and what ends there ends for other reasons."""

    async def scenario(world: World) -> None:
        await begin(world, a=1, b=0)
        await fill(world, "ordinary", "a")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4), schedulerName="asleep")
        await world.settle(5)
        await take_back(world)
        assert (await world.scheduling("urgent")).status.waiting_for == "Preempting"
        await world.publish("b", ["gpu-0"])
        await world.settle(10)
        (mirror,) = await world.mirrors()
        users = {"reservedFor": [consumer(reference(await world.pod("urgent")))]}
        await patch_claim(world.client, mirror, users)  # it is offered node b, and takes it
        await asyncio.sleep(TERMINATING_SECONDS - 5)
        world.kubelets.stop("a")
        await world.delete_pod("ordinary")
        await take_back(world)
        assert (await world.scheduling("urgent")).status.waiting_for == "SchedulerRefused"
        await world.settle(10)
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("named", [False, True])
def test_others_are_evicted_if_the_scheduler_refuses_where_the_pod_would_fit(play: Play, named: bool) -> None:
    """Parley does not know what keeps the pod from the node."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await fill(world, "ordinary", "a")
        await add_grump(world, "b", priority=20)
        await world.add_claim("disk")
        await world.settle(2)
        wanted: dict[str, Any] = {"claims": ["disk"]} if named else {}
        spec: dict[str, Any] = {"priority": 10, "containers": requesting(cpu=4), "affinity": APART}
        await world.add_pod("urgent", *([] if named else ["one"]), **spec, **wanted)
        await asyncio.sleep(PATIENCE.first + 60)
        assert evicted == ["ordinary"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.parametrize(
    ("priority", "spec"), [(0, {}), (10, {"preemptionPolicy": "Never"})], ids=["equal", "never preempts"]
)
def test_nobody_is_evicted_for(play: Play, priority: int, spec: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await fill(world, "ordinary", "a")
        await world.settle(2)
        await world.add_pod("waits", "one", priority=priority, containers=requesting(cpu=4), **spec)
        await world.settle(PATIENCE.first * 3)
        assert evicted == []
        assert "too little cpu left" in (await world.scheduling("waits")).status.message

    play(scenario)


def test_nobody_is_evicted_where_no_device_is_free(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=0)
        await world.add_pod("holder", "one", priority=10)
        await world.settle()
        await fill(world, "ordinary", "a")
        await fill(world, "other", "b")
        await world.settle(2)
        await world.add_pod("waits", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(PATIENCE.first * 3)
        assert evicted == []
        await world.delete_pod("holder")
        await world.settle(60)
        assert evicted == ["holder", "ordinary"]
        assert await world.node_of("waits") == "a"

    play(scenario)


def test_the_least_important_and_fewest_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1, c=1)
        await fill(world, "important", "a", priority=5)
        for name in ("small", "smaller"):
            await fill(world, name, "b", priority=1, amount=3)
        await fill(world, "least", "c", priority=1)
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=8))
        await world.settle()
        assert evicted == ["least"]
        assert await world.node_of("urgent") == "c"

    play(scenario)


def test_a_node_with_room_is_preferred_to_an_eviction(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await fill(world, "ordinary", "a")
        await world.settle(2)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle()
        assert evicted == []
        assert await world.node_of("urgent") == "b"

    play(scenario)
