"""Claims that need no plugin on the node, and claims that can be used on every node, such as tokens."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.drivers.tokens import TokensDriver
from parley.scheduler.attempts import PATIENCE

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, scope: str = "Cluster", pool: int = 3) -> None:
    for node in ("a", "b", "c"):
        await world.add_node(node)
    parameters = {"pool": pool, "scope": scope}
    await world.add_class("seats", driverName=TokensDriver.name, parameters=parameters, nodePart="None")
    await world.add_template("seat", "seats")
    await world.add_template("two", "seats", count=2)
    await world.add_claim("common", "seats", count=2)
    world.start_parley(drivers=[TokensDriver()])


async def allocated(world: World) -> list[BuiltinClaim]:
    return [mirror for mirror in await world.mirrors() if mirror.status.allocation is not None]


async def running(world: World) -> list[str]:
    pods = (await world.client.list(PODS)).items
    return sorted(p.metadata.name for p in pods if p.status.phase == "Running")


def results_and_nodes(mirror: BuiltinClaim) -> tuple[int, bool]:
    """How many results the allocation has, and whether it is limited to nodes."""
    assert mirror.status.allocation is not None
    return len(mirror.status.allocation.devices.results), mirror.status.allocation.node_selector is not None


@pytest.mark.parametrize("scope", ["Cluster", "Node"])
@pytest.mark.parametrize("kind", ["generated", "named"])
def test_the_kubelet_is_given_nothing_to_prepare(play: Any, scope: str, kind: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world, scope)
        generated = kind == "generated"
        await world.add_pod("p", *["seat"] * generated, claims=["common"][generated:])
        await world.settle()
        assert await running(world) == ["p"]
        (mirror,) = await allocated(world)
        assert results_and_nodes(mirror) == (0, scope == "Node")

    play(scenario)


@pytest.mark.parametrize("scope", ["Cluster", "Node"])
@pytest.mark.parametrize("kind", ["generated", "named"])
def test_after_a_restart_tokens_are_counted_and_a_cleared_record_is_made_the_same(
    play: Any, scope: str, kind: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, scope)
        generated = kind == "generated"
        await world.add_pod("p", *["two"] * generated, claims=["common"][generated:], nodeSelector={"only": "d"})
        await world.add_node("d", labels={"only": "d"})
        await world.settle()
        assert await running(world) == ["p"]
        await restart(world, [TokensDriver()])
        await world.add_pod("q", "two", nodeSelector={"only": "d"})
        await world.settle()
        assert await running(world) == ["p"]
        assert "1 of 3 tokens of class seats free, 2 wanted" in (await world.scheduling("q")).status.message
        (mirror,) = await allocated(world)
        body = {"status": {"allocation": None, "reservedFor": None}}
        await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, "default", subresource="status")
        await world.settle()
        (after,) = await allocated(world)
        assert (after.metadata.name, results_and_nodes(after)) == (mirror.metadata.name, (0, scope == "Node"))
        await world.delete_pod("p")
        await world.settle()
        assert await running(world) == ["q"]

    play(scenario)


def test_a_claim_that_can_be_used_everywhere_serves_its_next_pod_on_another_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_class(
            "open", driverName=TokensDriver.name, parameters={"pool": 1}, nodePart="None", shareable=True
        )
        await world.add_claim("shared", "open")
        for node in ("a", "b", "c"):
            await world.add_pod(node, claims=["shared"], nodeSelector={"kubernetes.io/hostname": node})
        await world.settle()
        assert [await world.node_of(name) for name in "abc"] == ["a", "b", "c"]
        await restart(world, [TokensDriver()])
        await world.add_node("d")
        await world.add_pod("d", claims=["shared"], nodeSelector={"kubernetes.io/hostname": "d"})
        await world.settle()
        assert await world.node_of("d") == "d"
        for name in "abcd":
            await world.delete_pod(name)
        await world.settle()
        assert (await world.claim("shared")).status.allocation is None

    play(scenario)


def test_the_scheduler_may_prefer_another_node_for_tokens_of_the_cluster(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        for node in ("a", "b"):
            await add_grump(world, node)
        for i in range(3):
            await world.add_pod(f"p{i}", "seat", affinity=APART)
        await world.settle()
        assert [await world.node_of(f"p{i}") for i in range(3)] == ["c", "c", "c"]
        assert len(await allocated(world)) == 3

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender asks before anything is allocated
def test_what_can_be_used_everywhere_is_allocated_once_for_a_pod_that_the_scheduler_refuses(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, everywhere=True)
        for node in ("a", "b", "c"):
            await world.add_node(node)
            await add_grump(world, node)
        await add_shelf_class(world, nodePart="None")
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.add_pod("p", "shelf", affinity=APART)
        await asyncio.sleep(PATIENCE.first - 60)
        assert await world.node_of("p") == ""
        await world.delete_pod("grump-b")
        await world.settle()
        assert await world.node_of("p") == "b"
        assert behaviour.calls["allocate"] == 1

    play(scenario)
