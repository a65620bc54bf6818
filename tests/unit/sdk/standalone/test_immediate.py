"""Immediate claims: allocated at once, on a node of the driver's choice, without any pod."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.sdk.standalone.world import DRIVER, Array, ArrayDriver, ShelfDriver, World

from parley.api.meta import Condition
from parley.api.names import driver_finalizer
from parley.api.resources import CLASSES, NODES
from parley.kube.client import Call, OutcomeUnknown, RawEvent
from parley.sdk import PermanentError

Play = Callable[[Callable[[World], Any]], None]


async def condition(world: World, claim: str) -> Condition:
    """Why it is not allocated, which both conditions show."""
    shown = (await world.claim(claim)).status
    (found,) = [one for one in shown.conditions if one.type == "Allocating"]
    (also,) = [one for one in shown.conditions if one.type == "Allocated"]
    assert shown.allocation is not None or (also.reason, also.message) == (found.reason, found.message)
    return found


def test_it_is_allocated_where_the_driver_prefers_it(play: Play) -> None:
    class Choosy(ShelfDriver):
        def score(self, request: Any, nodes: Any) -> Any:
            return {node: self.free(node) / 4 for node in nodes}

    async def scenario(world: World) -> None:
        for node, disks in (("a", 1), ("b", 3), ("c", 2)):
            await world.add_node(node, disks)
        await world.add_class()
        driver = Choosy()
        world.start(driver)
        await world.add_claim("disk", mode="Immediate")
        await world.settle()

        assert await world.node_of("disk") == "b"
        assert (await world.claim("disk")).metadata.finalizers == (driver_finalizer(DRIVER),)
        assert list(driver.held.values()) == [("b", 1)]

    play(scenario)


def test_only_suitable_nodes_that_take_ordinary_pods_come_into_question(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("unsuitable", 1)
        await world.add_node("cordoned", 1, unschedulable=True)
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        await world.add_node("unreachable", 1, taints=[taint])
        await world.add_node("dedicated", 1, taints=[{"key": "team", "effect": "NoSchedule"}])
        await world.add_node("fit", 1)
        named = {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["unsuitable"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [named]})
        world.start(ShelfDriver())
        for claim in ("one", "two"):
            await world.add_claim(claim, mode="Immediate")
            await world.settle()

        assert await world.node_of("one") == "fit"
        assert await world.node_of("two") == ""
        shown = await condition(world, "two")
        assert (shown.type, shown.status, shown.reason) == ("Allocating", "False", "NothingViable")
        assert shown.message == (
            "0 of 5 nodes are available: node cordoned: cordoned; node dedicated: taint team:NoSchedule; "
            "node fit: claim two: 0 disks free; "
            "node unreachable: taint node.kubernetes.io/unreachable:NoExecute; "
            "node unsuitable: not among the suitableNodes of class disk. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        await world.client.patch(NODES, "cordoned", {"spec": {"unschedulable": None}})
        await world.settle()
        assert await world.node_of("two") == "cordoned"
        assert (await condition(world, "two")).reason == "Done"

    play(scenario)


def test_bad_parameters_are_reported_and_read_again_when_the_class_changes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class(parameters={"odd": 1})
        world.start(ShelfDriver())
        await world.add_claim("disk", mode="Immediate")
        await world.settle()
        shown = await condition(world, "disk")
        assert shown.reason == "ParametersInvalid"
        assert shown.message.startswith("parameters of class disk: odd=1 is not a parameter")
        await world.client.patch(CLASSES, "disk", {"parameters": None})
        await world.settle()

        assert await world.node_of("disk") == "a"

    play(scenario)


def test_a_freed_disk_has_the_first_of_those_that_wait_looked_at(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_class()
        driver = ShelfDriver()
        world.start(driver)
        for number in range(50):
            await world.add_claim(f"disk-{number}", mode="Immediate")
        await world.settle()
        driver.evaluated.clear()
        await world.set_disks("a", 2)
        await world.settle()

        assert [await world.node_of(f"disk-{n}") for n in range(3)] == ["a", "a", ""]
        assert len(driver.evaluated) < 8

    play(scenario)


def test_where_one_node_fails_the_next_is_tried(play: Play, array: Array) -> None:
    array.broken = {"a": RuntimeError("read-only"), "b": RuntimeError("read-only")}

    async def scenario(world: World) -> None:
        for node in ("a", "b", "c"):
            await world.add_node(node)
        await world.add_class()
        world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await world.settle()

        assert await world.node_of("disk") == "c"
        assert array.faults == []

    play(scenario)


def test_what_fails_everywhere_is_reported_and_tried_again(play: Play, array: Array) -> None:
    array.broken = {node: RuntimeError("read-only") for node in "abc"}

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class()
        client = FaultClient(world.server.client())
        world.start(ArrayDriver(array), client)
        await world.add_claim("disk", mode="Immediate")
        await asyncio.sleep(50)
        shown = [
            c for call in client.calls if call.body for c in call.body.get("status", {}).get("conditions", ())
        ]
        assert {c["message"] for c in shown if c["reason"] == "AllocationFailed"} == {"nodes a, b: read-only"}
        array.broken.clear()
        await world.settle()

        assert await world.node_of("disk") != ""

    play(scenario)


def test_a_node_where_the_driver_never_will_is_tried_once(play: Play, array: Array) -> None:
    array.seconds = 1
    array.broken = {"a": PermanentError("scrapped")}

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class()
        world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await world.settle()
        shown = await condition(world, "disk")
        assert shown.reason == "NothingViable"
        assert shown.message == (
            "0 of 1 node is available: node a: could not allocate: scrapped. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        await world.add_node("b")
        await world.settle()

        assert array.calls["allocate"] == 2
        assert await world.node_of("disk") == "b"

    play(scenario)


def test_a_change_of_the_class_voids_what_failed_before(play: Play, array: Array) -> None:
    array.seconds = 1
    array.broken = {"a": PermanentError("scrapped")}

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class()
        world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await world.settle()
        array.broken.clear()
        await world.client.patch(CLASSES, "disk", {"allocationTimeoutSeconds": 100})
        await world.settle()

        assert await world.node_of("disk") == "a"

    play(scenario)


def test_deleted_while_it_is_allocated_it_is_aborted(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class()
        world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await asyncio.sleep(5)
        assert len(array.volumes) == 1
        await world.delete("disk")
        await world.settle()

        assert not await world.exists("disk")
        assert array.volumes == {}

    play(scenario)


def test_once_taken_back_it_is_allocated_anew(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        driver = ShelfDriver()
        world.start(driver)
        await world.add_claim("disk", mode="Immediate")
        await world.settle()
        await world.add_node("b", 1)
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.take_back("disk")
        await world.settle()

        assert await world.node_of("disk") == "b"
        assert list(driver.held.values()) == [("b", 1)]

    play(scenario)


def test_claims_of_other_drivers_classes_are_left_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        body = {"metadata": {"name": "gpu"}, "driverName": "gpus.example.com"}
        await world.create(CLASSES, body)
        world.start(ShelfDriver())
        await world.add_claim("gpu", "gpu", mode="Immediate")
        await world.settle()

        assert (await world.claim("gpu")).metadata.finalizers == ()

    play(scenario)


class CutOff(FaultClient):
    """Reads nothing while it is `down`."""

    down = False

    async def request(self, call: Call) -> bytes:
        if self.down and not call.writes:
            raise OutcomeUnknown("cut off")
        return await super().request(call)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if self.down:
                raise OutcomeUnknown("cut off")
            yield event


def test_another_claim_of_the_name_does_not_wait_for_what_the_former_one_lacked(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        client = CutOff(world.server.client())
        world.start(ShelfDriver(), client)
        await world.add_claim("disk", mode="Immediate", size=3)
        await world.settle()
        assert (await condition(world, "disk")).reason == "NothingViable"
        client.down = True  # the end of one and the beginning of the other are seen at the same time
        await world.delete("disk")
        await asyncio.sleep(3)
        await world.add_claim("disk", mode="Immediate", size=1)
        await asyncio.sleep(3)
        client.down = False
        await asyncio.sleep(300)

        assert await world.node_of("disk") == "a"

    play(scenario)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("InController", "by the status of class disk, driver disks.example.com still runs in the controller"),
        (
            "DriverMoved",
            "by the status of class disk, pods still use what driver disks.example.com allocated inside",
        ),
    ],
)
def test_it_waits_for_what_the_driver_allocated_in_the_controller(play: Play, reason: str, says: str) -> None:
    def conditions(status: str, reason: str, message: str) -> dict[str, Any]:
        then = "2026-01-01T00:00:00Z"
        ready = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": then,
        }
        return {"status": {"conditions": [ready]}}

    async def judge(world: World, status: str, reason: str, message: str = "") -> None:
        body = conditions(status, reason, message)
        await world.client.patch(CLASSES, "disk", body, subresource="status")
        await world.settle()

    async def scenario(world: World) -> None:
        await world.add_node("a", 2)
        await world.add_class()
        await judge(world, "True" if reason == "InController" else "False", reason, "theirs/secret")
        driver = ShelfDriver()
        world.start(driver)
        await world.add_claim("one", mode="Immediate")
        await world.add_claim("two", mode="Immediate")
        await world.settle()
        for claim in ("one", "two"):
            assert not await world.node_of(claim)
            shown = await condition(world, claim)
            assert shown.reason == "DriverMoved"
            assert shown.message.startswith(says)
            assert "theirs" not in shown.message
        assert not driver.evaluated

        await judge(world, "False", "DriverMissing")
        assert [await world.node_of(claim) for claim in ("one", "two")] == ["a", "a"]

    play(scenario)
