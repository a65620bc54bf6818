"""What becomes of a pod when a driver says that it will never allocate on a node."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.faults import FaultClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, failing, restart

from parley.api.resources import CLASSES, PODS
from parley.drivers.device import DeviceDriver
from parley.sdk import PermanentError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

ROOT = Path(__file__).parents[3]
BROKEN = PermanentError("the firmware is too old")
FAILED = "driver shelf.example.com could not allocate on node {}: the firmware is too old"
NOT_AGAIN = "(the pod does not try it again: recreate the pod, or change class shelf, once the cause is gone)"


async def begin(world: World, *nodes: str, **class_: Any) -> Behaviour:
    behaviour = Behaviour(other=4)
    for node in nodes:
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    return behaviour


def held(world: World) -> int:
    assert world.controller is not None
    return len(world.controller.ledger)


def test_the_node_is_left_out_for_that_pod_and_another_one_is_taken(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", "b")
        behaviour.trouble = failing(BROKEN, "a")
        for i in range(4):
            await world.add_pod(f"p{i}", "shelf")
        await world.settle()
        assert [await world.node_of(f"p{i}") for i in range(4)] == ["b"] * 4
        assert behaviour.allocated.count("a") <= 4

    play(scenario)


def test_a_pod_that_no_node_is_left_for_says_why_for_each(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", "b")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf")
        await world.settle()
        assert sorted(behaviour.allocated) == ["a", "b"]
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (
            "NothingViable",
            f"0 of 2 nodes are available: node a: claim gpu-0: {FAILED.format('a')} {NOT_AGAIN}; "
            f"node b: claim gpu-0: {FAILED.format('b')} {NOT_AGAIN}. "
            "Remedy: free resources, request less, or add nodes that have what is requested",
        )
        assert held(world) == 0
        await asyncio.sleep(3600)
        assert len(behaviour.allocated) == 2
        await world.add_node("c")
        behaviour.trouble = failing(BROKEN, "a", "b")
        await world.settle()
        assert await world.node_of("p") == "c"

    play(scenario)


def test_another_pod_is_still_tried_there(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf")
        await world.settle()
        behaviour.trouble = failing(BROKEN, "none")
        await world.add_pod("q", "shelf")
        await world.settle()
        assert (await world.node_of("p"), await world.node_of("q")) == ("", "a")

    play(scenario)


def test_a_changed_class_gives_excluded_nodes_another_chance(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf")
        await world.settle()
        behaviour.trouble = failing(BROKEN, "none")
        await world.client.patch(CLASSES, "shelf", {"parameters": {"times": 2}})
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_class_that_is_changed_while_the_pod_is_left_alone_does_so_too(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        behaviour.trouble = failing(RuntimeError("busy"))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(60)
        behaviour.trouble = failing(BROKEN)
        await asyncio.sleep(60)
        assert (await world.scheduling("p")).status.message == FAILED.format("a")
        behaviour.trouble = failing(BROKEN, "none")
        await world.client.patch(CLASSES, "shelf", {"parameters": {"times": 2}})
        await asyncio.sleep(600)
        assert await world.node_of("p") == "a"

    play(scenario)


def test_the_scheduler_chooses_again_without_the_excluded_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", "b", placement="Exact")
        behaviour.trouble = failing(BROKEN, "a")
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == "b"
        assert behaviour.allocated in (["a", "b"], ["b"])

    play(scenario)


@pytest.mark.parametrize("placement", ["Optimistic", "Exact"])
def test_a_class_may_fail_the_pod_so_that_its_controller_replaces_it(play: Any, placement: str) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", onPermanentError="FailPod", placement=placement)
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf", "shelf")
        await world.settle()
        status = (await world.client.get(PODS.untyped(), "p", "default"))["status"]
        told = (status["phase"], status["reason"], status["message"])
        assert told == ("Failed", "PermanentlyFailed", FAILED.format("a"))
        assert ("PermanentlyFailed", FAILED.format("a")) in await world.events_on("p")
        assert held(world) == 0
        assert not [m for m in await world.mirrors() if m.status.allocation is not None]
        assert behaviour.calls["allocate"] == 1

    play(scenario)


def test_the_manifests_give_the_controller_the_rights_to_do_so(play: Any) -> None:
    files = (ROOT / "deploy" / "base" / "controller.yaml", ROOT / "deploy/extender/permissions/controller.yaml")
    roles = [d for file in files for d in yaml.safe_load_all(file.read_text()) if d["kind"] == "ClusterRole"]
    rights = {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    async def scenario(world: World) -> None:
        client = FaultClient(world.server.client())
        await world.add_node("a")
        await add_shelf_class(world, onPermanentError="FailPod")
        world.start_parley(client, drivers=[ShelfDriver(Behaviour(other=4, trouble=failing(BROKEN)))])
        await world.add_pod("p", "shelf")
        await world.settle()
        asked = {
            (c.resource.group, "/".join(filter(None, (c.resource.plural, c.subresource))), c.verb)
            for c in client.calls
        }
        assert ("", "pods/status", "patch") in asked
        assert asked <= rights

    play(scenario)


def test_a_failed_pod_lets_go_of_what_other_drivers_allocated_and_of_claims_that_it_shares(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_class("common", shareable=True)
        await world.add_claim("common", "common")
        await world.add_class()
        await world.add_template("one")
        await world.add_node("a", devices=2)
        behaviour = Behaviour(other=4, trouble=failing(BROKEN))
        await add_shelf_class(world, onPermanentError="FailPod")
        world.start_parley(drivers=[ShelfDriver(behaviour), DeviceDriver()])
        await world.add_pod("friend", claims=["common"])
        await world.settle()
        await world.add_pod("p", "one", "shelf", claims=["common"])
        await world.settle()
        assert (await world.pod("p")).status.phase == "Failed"
        assert [user.name for user in (await world.claim("common")).status.reserved_for] == ["friend"]
        assert held(world) == 1
        assert sum((await world.devices()).values()) == 1

    play(scenario)


def test_only_a_permanent_error_fails_the_pod(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", onPermanentError="FailPod")
        behaviour.trouble = failing(RuntimeError("busy"))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(30)
        assert (await world.pod("p")).status.phase != "Failed"
        behaviour.trouble = failing(BROKEN, "none")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_pod_that_others_bound_is_not_failed_but_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", onPermanentError="FailPod")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf", nodeName="a")
        await world.settle()
        assert (await world.pod("p")).status.phase != "Failed"
        assert ("PermanentlyFailed", FAILED.format("a")) in await world.events_on("p")
        status = (await world.scheduling("p")).status
        assert status.waiting_for == "NothingViable"
        assert FAILED.format("a") in status.message
        assert behaviour.calls["allocate"] == 1

    play(scenario)


def test_after_a_restart_the_node_is_tried_once_more(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", "b")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf")
        await world.settle()
        await restart(world, [ShelfDriver(behaviour)])
        await world.settle()
        assert sorted(behaviour.allocated) == ["a", "a", "b", "b"]
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"

    play(scenario)


def test_the_pod_of_that_name_that_comes_next_starts_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", onPermanentError="FailPod")
        behaviour.trouble = failing(BROKEN)
        await world.add_pod("p", "shelf")
        await world.settle()
        behaviour.trouble = failing(BROKEN, "none")
        await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)
