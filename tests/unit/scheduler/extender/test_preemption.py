"""Nobody is evicted for a pod that could not run on the node afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.support.faults import FaultClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, Shelves, Wanted, add_shelf_class

from parley.api.resources import NODES, PODS
from parley.kube.client import Call, OutcomeUnknown
from parley.sdk import Answer, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


async def begin(world: World, places: dict[str, int]) -> None:
    """Nodes whose CPUs are all in use by a pod of low priority."""
    for node in places:
        await world.add_node(node)
    await add_shelf_class(world)
    world.start_parley(drivers=[ShelfDriver(Behaviour(places=places))])
    for node in places:
        await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
    await world.settle()


async def there(world: World) -> list[str]:
    return sorted(pod.metadata.name for pod in (await world.client.list(PODS)).items)


def test_an_important_pod_that_is_viable_nowhere_evicts_nobody(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 0})
        await world.add_pod("important", "shelf", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert world.calls.count["preempt"] >= 1
        assert await there(world) == ["important", "weak-a", "weak-b"]
        assert (await world.pod("important")).status.nominated_node_name == ""
        before = world.calls.count["preempt"]
        await world.settle(600)
        assert world.calls.count["preempt"] == before

    play(scenario)


def test_an_important_pod_evicts_where_it_is_viable_and_runs_there(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 1, "c": 0})
        await world.add_pod("important", "shelf", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert await there(world) == ["important", "weak-a", "weak-c"]
        assert await world.node_of("important") == "b"

    play(scenario)


def test_where_a_claim_is_allocated_elsewhere_nobody_is_evicted(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 1})
        await world.add_node("c")
        await world.add_class("common", driverName=ShelfDriver.name, shareable=True)
        await world.add_claim("disk", "common")
        await world.add_pod("user", claims=["disk"], priority=2000, nodeName="b", containers=requesting(cpu="0"))
        await world.settle()
        await world.client.patch(NODES, "c", {"spec": {"unschedulable": True}})
        await world.add_pod("important", claims=["disk"], priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert await there(world) == ["important", "user", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


@pytest.mark.parametrize("claims", [(), ("shelf",)])
def test_an_important_pod_that_fits_somewhere_evicts_nobody(play: Any, claims: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 1})
        await world.client.delete(PODS, "weak-b", "default")
        await world.settle()
        await world.add_pod("important", *claims, priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert await world.node_of("important") == "b"
        assert await there(world) == ["important", "weak-a"]

    play(scenario)


def test_pods_without_claims_evict_as_ever(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 0})
        await world.add_pod("important", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert await world.node_of("important") in ("a", "b")
        assert len(await there(world)) == 2

    play(scenario)


def test_a_device_that_a_less_important_pod_holds_is_no_reason_to_evict_it(play: Any) -> None:
    """Its class does not say that it may be taken: Parley says no node would help."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        world.start_parley(drivers=[ShelfDriver(Behaviour(places={"a": 1}))])
        await world.add_pod("weak", "shelf", priority=1)
        await world.settle()
        await world.add_pod("important", "shelf", priority=1000)
        await world.settle()
        assert await there(world) == ["important", "weak"]
        assert await world.node_of("weak") == "a"

    play(scenario)


def test_an_important_pod_that_was_viable_nowhere_evicts_once_something_is_free_where_evicting_helps(
    play: Any,
) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        for node in ("a", "b"):
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
        await world.settle()
        await world.add_pod("important", "one", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert await there(world) == ["important", "weak-a", "weak-b"]
        assert (await world.scheduling("important")).status.waiting_for == "NothingViable"

        await world.publish("b", ["gpu-0"])

        await world.settle()
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


def test_a_bind_gets_nothing_that_others_were_evicted_for(play: Any) -> None:
    """As if its filter had been answered before; the preemptor is of an unmodified scheduler."""

    async def scenario(world: World) -> None:
        await world.add_node("a", 2)
        await world.add_class(preemption="LowerPriority")
        await world.add_template("one")
        await world.add_template("two", count=2)
        world.start_parley()
        await world.add_pod("low", "one", priority=1)
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("urgent", "two", priority=10, schedulerName="default-scheduler")
        await world.settle(5)
        assert (await world.pod("low")).metadata.deletion_timestamp
        await world.add_pod("slow", "one", priority=5)
        await world.settle(5)
        uid = (await world.pod("slow")).metadata.uid

        answer = await world.ask(
            "bind", {"PodName": "slow", "PodNamespace": "default", "PodUID": uid, "Node": "a"}
        )

        assert answer["Error"] == (
            "node a: what evicted pods release there is kept for the pod that they were evicted for"
        )
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"

    play(scenario)


async def waits_where_nothing_is_viable(world: World, behaviour: Behaviour) -> None:
    """The pod's scheduler has asked where it may evict others for it, and will not by itself ask again."""
    for node in ("a", "b"):
        await world.add_node(node)
        await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
    await add_shelf_class(world)
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    await world.settle()
    await world.add_pod("important", "shelf", priority=1000, containers=requesting(cpu="4"))
    await world.settle()
    assert await there(world) == ["important", "weak-a", "weak-b"]
    assert world.calls.count["filter"] == 0


def test_what_a_new_leader_finds_viable_is_evicted_for_though_its_predecessor_found_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        await waits_where_nothing_is_viable(world, Behaviour())
        await world.crash()
        world.start_parley(drivers=[ShelfDriver(Behaviour(places={"b": 1}))])
        await world.settle()
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


class Failing(ShelfDriver):
    """Cannot answer while `broken`."""

    broken = True

    def viable(self, request: Request[Wanted, Shelves], nodes: Sequence[str]) -> Mapping[str, Answer]:
        if self.broken:
            raise RuntimeError("no connection to the shelves")
        return super().viable(request, nodes)


def test_a_driver_that_failed_when_it_was_asked_where_to_evict_is_asked_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 1})
        await world.crash()
        driver = Failing(Behaviour(places={"b": 1}))
        world.start_parley(drivers=[driver])
        await world.add_pod("important", "shelf", priority=1000, containers=requesting(cpu="4"))
        await world.settle(20)
        assert await there(world) == ["important", "weak-a", "weak-b"]
        assert (await world.scheduling("important")).status.waiting_for == "DriverFailed"

        driver.broken = False
        await world.settle(600)
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


def test_what_is_reported_of_a_pod_follows_where_others_could_be_evicted(play: Any) -> None:
    """Without its scheduler, which has no reason to ask."""

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
        await world.add_class()
        await world.add_template("two", count=2)
        world.start_parley()
        await world.add_pod("important", "two", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        assert "has no devices" in (await world.scheduling("important")).status.message
        asked = world.calls.count["preempt"]

        await world.publish("b", ["gpu-0"])
        await world.settle()
        assert "1 device" in (await world.scheduling("important")).status.message
        assert await there(world) == ["important", "weak-a", "weak-b"]
        assert world.calls.count["preempt"] == asked

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_nomination_whose_end_was_lost_is_ended_all_the_same(play: Any, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        client = LosesEnds(world.server.client())
        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class()
        await world.add_template()
        world.start_parley(client)
        for node in ("a", "b"):
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
        await world.settle()
        await world.add_pod("important", "one", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        await world.publish("b", ["gpu-0"])
        await asyncio.sleep(1)
        assert (await world.pod("important")).status.nominated_node_name == "b"
        assert client.lost > 0
        if restarted:
            await world.crash()
            world.start_parley()
        client.broken = False
        await world.settle()
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


def test_what_becomes_viable_long_after_a_new_leader_began_is_evicted_for(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
        await world.add_class()
        await world.add_template("one")
        world.start_parley()
        await world.settle()
        await world.add_pod("important", "one", priority=1000, containers=requesting(cpu="4"))
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle(60)
        assert "has no devices" in (await world.scheduling("important")).status.message

        await world.publish("b", ["gpu-0"])
        await world.settle()
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)


class LosesEnds(FaultClient):
    """While `broken`, nominations cannot be ended."""

    broken = True
    lost = 0

    async def request(self, call: Call) -> bytes:
        status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
        if self.broken and call.resource == PODS and status.get("nominatedNodeName", "") is None:
            self.lost += 1
            raise OutcomeUnknown("connection lost")
        return await super().request(call)


def test_a_new_leader_ends_a_nomination_that_its_predecessor_made_to_have_the_pod_retried(play: Any) -> None:
    async def scenario(world: World) -> None:
        await waits_where_nothing_is_viable(world, Behaviour())
        await world.crash()
        nominated = {"status": {"nominatedNodeName": "b"}}
        await world.client.patch(PODS, "important", nominated, "default", subresource="status")
        world.start_parley(drivers=[ShelfDriver(Behaviour(places={"b": 1}))])
        await world.settle()
        assert await there(world) == ["important", "weak-a"]
        assert await world.node_of("important") == "b"

    play(scenario)
