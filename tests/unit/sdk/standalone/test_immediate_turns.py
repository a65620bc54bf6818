"""For whom an immediate claim waits while a slow driver allocates another one, and for whom it does not."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.sdk.standalone.world import DRIVER, Array, ArrayDriver, Disks, ShelfDriver, World

from parley.api.resources import CLAIMS, CLASSES, NODES
from parley.kube.client import Client, ServerError
from parley.sdk import Answer, NoParameters, Request
from parley.sdk.standalone.runner import WORKERS

Play = Callable[[Callable[[World], Any]], None]


async def put_claim(world: World, namespace: str) -> None:
    spec = {"resourceClassName": "disk", "allocationMode": "Immediate"}
    meta = {"name": "mine", "namespace": namespace}
    kind = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind}
    await world.client.create(CLAIMS, {**kind, "metadata": meta, "spec": spec}, namespace)


async def judge(world: World, reason: str) -> None:
    """What the controller says in the status of the class."""
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": ""}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await world.client.patch(CLASSES, "disk", {"status": {"conditions": [ready]}}, subresource="status")


def test_what_waited_for_the_driver_to_leave_the_controller_is_allocated_side_by_side(play: Play) -> None:
    async def scenario(world: World) -> None:
        array = Array({"a": 9}, seconds=60)
        await world.add_node("a")
        await world.add_class()
        await judge(world, "DriverMoved")
        world.start(ArrayDriver(array))
        for namespace in ("one", "two", "three"):
            await put_claim(world, namespace)
        await world.settle()
        assert not array.volumes
        await judge(world, "DriverMissing")
        await asyncio.sleep(70)

        claims = (await world.client.list(CLAIMS)).items
        assert [claim.status.driver_name for claim in claims] == [DRIVER] * 3

    play(scenario)


async def wait_for_disks(world: World, array: Array, client: Client | None = None) -> None:
    """Three claims wait in one line, then there are three disks."""
    await world.add_node("a")
    await world.add_class()
    world.start(ArrayDriver(array), client)
    for name in ("one", "two", "three"):
        await world.add_claim(name, mode="Immediate")
        await asyncio.sleep(5)
    await world.settle()
    assert not array.volumes
    array.stock["a"] = 3
    await world.client.patch(NODES, "a", {"metadata": {"labels": {"disks": "new"}}})


class OnlyTwo(ShelfDriver):
    """Has disks for the claim "two" only, whatever the others request."""

    def viable(self, request: Request[Disks, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return super().viable(request, nodes if self.alike(request) else ())

    def alike(self, request: Request[Disks, NoParameters]) -> bool:
        return request.claims[0].claim == "two"


def test_who_wants_the_same_and_is_distinguished_by_the_driver_does_not_wait_for_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_class()
        world.start(OnlyTwo())
        for name in ("one", "two"):
            await world.add_claim(name, mode="Immediate")
            await asyncio.sleep(5)
        await world.set_disks("a", 1)
        await asyncio.sleep(5)
        assert (await world.claim("two")).status.driver_name == DRIVER

    play(scenario)


def test_who_wants_the_same_does_not_wait_until_a_slow_driver_is_done_with_the_first(play: Play) -> None:
    async def scenario(world: World) -> None:
        await wait_for_disks(world, Array({"a": 0}, seconds=200))
        await asyncio.sleep(250)

        assert [await world.node_of(name) for name in ("one", "two", "three")] == ["a"] * 3

    play(scenario)


def test_nobody_waits_behind_a_claim_that_the_api_server_fails_to_change(play: Play) -> None:
    async def scenario(world: World) -> None:
        def fails(call: NumberedCall) -> None:
            if call.verb == "patch" and call.name == "one" and not call.subresource:
                raise ServerError(500, "InternalError", "failed calling webhook")

        await wait_for_disks(world, Array({"a": 0}, 1), FaultClient(world.server.client(), before=fails))
        await asyncio.sleep(60)

        assert [await world.node_of(name) for name in ("one", "two", "three")] == ["", "a", "a"]

    play(scenario)


async def cordon(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"spec": {"unschedulable": True}})


async def forget(world: World, node: str) -> None:
    await world.client.delete(NODES, node)


async def exclude(world: World, node: str) -> None:
    terms = [{"matchExpressions": [{"key": "name", "operator": "NotIn", "values": [node]}]}]
    await world.client.patch(CLASSES, "disk", {"suitableNodes": {"nodeSelectorTerms": terms}})


@pytest.mark.parametrize("change", [cordon, forget, exclude])
def test_after_a_failure_it_goes_on_only_where_it_could_begin_now(
    play: Play, change: Callable[[World, str], Awaitable[None]]
) -> None:
    async def scenario(world: World) -> None:
        array = Array({"a": 9, "b": 9, "c": 9}, seconds=60)
        for node in ("a", "b", "c"):
            await world.add_node(node)
        await world.add_class()
        world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await asyncio.sleep(30)
        ((first, _),) = array.volumes.values()
        array.broken = {first: RuntimeError("read-only")}
        second, third = (node for node in ("a", "b", "c") if node != first)
        await change(world, second)
        await asyncio.sleep(300)
        await world.settle()

        assert await world.node_of("disk") == third

    play(scenario)


class Counting(ShelfDriver):
    """`most` is about how many nodes it was asked in one turn of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.most = 0

    def viable(self, request: Request[Disks, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.asked += len(nodes)
        self.most = max(self.most, self.asked)
        return super().viable(request, nodes)

    async def count(self) -> None:
        while True:
            self.asked = 0
            await asyncio.sleep(0)


def test_many_claims_on_many_nodes_leave_others_their_turn(play: Play) -> None:
    async def scenario(world: World) -> None:
        for number in range(1000):
            await world.add_node(f"n{number}")
        await world.add_class()
        for number in range(100):
            await world.add_claim(f"claim-{number}", mode="Immediate", size=1 + number)
        driver = Counting()
        world.start(driver)
        assert world.runner is not None
        await world.runner.ready.wait()
        counting = asyncio.create_task(driver.count())
        for _ in range(3000):
            await asyncio.sleep(0)
        counting.cancel()

        assert len(driver.evaluated) == 100 * 8, "each is judged, on 128 nodes at a time"
        assert driver.most <= WORKERS * 128

    play(scenario)
