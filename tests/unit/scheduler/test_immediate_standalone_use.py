"""A standalone driver allocates claims with allocationMode Immediate by itself; pods use them until their end."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.immediate_claims import is_free, is_used_by
from tests.unit.scheduler.shelf import restart

from parley.api.resources import CLAIMS
from parley.kube.client import ServerError
from parley.sdk import Allocation, Answer, Driver, Held, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


class Racks(Driver[NoParameters, NoParameters]):
    """A standalone driver: one place on each of its nodes."""

    name = "racks.example.com"
    parameters = NoParameters
    class_parameters = NoParameters

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.held: dict[str, str] = {}

    def viable(self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        viable = tuple(node for node in nodes if node in self.nodes and node not in self.held.values())
        return {c.name: Answer(viable, None, dict.fromkeys(nodes, "no rack")) for c in request.claims}

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        (claim,) = request.claims
        self.held[claim.uid] = node
        return {claim.name: Allocation(data={"rack": node})}

    async def deallocate(self, uid: str) -> None:
        self.held.pop(uid, None)

    def restore(self, held: Held) -> None:
        assert held.node is not None
        self.held[held.uid] = held.node


def test_a_driver_outside_allocates_by_itself_and_is_asked_back_only_when_the_claim_is_deleted(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in "abc":
            await world.add_node(node)
        await world.add_class("rack", driverName=Racks.name)
        world.start_parley(drivers=[])
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        waits = (await world.scheduling("p")).status
        assert (waits.waiting_for, waits.message) == (
            "ClaimPending",
            "claim default/now is not allocated yet: "
            "driver racks.example.com has yet to allocate it, without a pod",
        )
        world.start_driver(driver := Racks("b"))
        await world.settle()
        assert await world.node_of("p") == "b"
        await is_used_by(world, "p")
        await world.add_pod("q", claims=["now"])
        await asyncio.sleep(60)
        await world.delete_pod("p")
        await world.settle()
        await is_used_by(world, "q")
        await world.delete_pod("q")
        await world.settle()
        await is_free(world)
        await restart(world, [], after=20)
        await world.settle(400)
        await is_free(world)
        assert list(driver.held.values()) == ["b"]
        await world.add_pod("r", claims=["now"])
        await world.settle()
        await is_used_by(world, "r")
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.settle()
        await is_used_by(world, "r")
        await world.delete_pod("r")
        await world.settle()
        await nothing_is_left(world)
        assert driver.held == {}

    play(scenario)


def test_a_claim_of_a_driver_outside_serves_pods_after_those_of_an_earlier_one_of_its_name(play: Any) -> None:
    """The earlier one was forced away while a pod used it, and the driver has allocated the next one since."""

    async def scenario(world: World) -> None:
        for node in "abc":
            await world.add_node(node)
        await world.add_class("rack", driverName=Racks.name)
        world.start_parley(drivers=[])
        world.start_driver(driver := Racks("b", "c"))
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("p", claims=["now"])
        await world.settle()
        await is_used_by(world, "p")
        await world.force_away("now")
        await world.settle()
        await world.add_claim("now", "rack", mode="Immediate")
        await world.add_pod("q", claims=["now"])
        await world.settle()
        assert not await world.node_of("q")
        await world.finish_pod("p")
        await world.settle()
        assert (await world.pod("q")).status.phase == "Running"
        await is_used_by(world, "q")
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await world.delete_pod("q")
        await world.settle()
        assert driver.held == {}
        assert len(world.ledger) == 0

    play(scenario)


def test_a_claim_that_is_deleted_before_its_first_pod_is_recorded_goes_back_to_its_driver(play: Any) -> None:
    """The driver takes it back as soon as it sees the deletion; the pod ran with what others had by then."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class("rack", driverName=SlowRacks.name)
        fails = True

        def refuse(call: NumberedCall) -> None:
            if fails and call.resource == CLAIMS and (call.body or {}).get("status", {}).get("reservedFor"):
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[])
        world.start_driver(driver := SlowRacks("a"))
        await world.add_claim("now", "rack", mode="Immediate")
        await world.settle()
        await world.add_pod("p", claims=["now"])
        await asyncio.sleep(2)
        await world.client.delete(CLAIMS, "now", NAMESPACE)
        await asyncio.sleep(2)
        assert not driver.held
        fails = False
        await asyncio.sleep(60)
        assert not await world.node_of("p")
        assert (await world.scheduling("p")).status.waiting_for == "ClaimNotFound"

    play(scenario)


class SlowRacks(Racks):
    """It takes a while to report that a place is free."""

    async def deallocate(self, uid: str) -> None:
        await super().deallocate(uid)
        await asyncio.sleep(15)
