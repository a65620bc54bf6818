"""Pods whose node is selected by what a standalone driver answered for another one (`answered_capacity`)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.held_watch import HeldWatch

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.pod import reference
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.scheduler.native.path import NativePath
from parley.scheduler.standalone import QUIET_SECONDS
from parley.sdk import Allocation, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Seats(TokensDriver):
    """Never allocates on nodes in `broken`; allocating takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.broken: set[str] = set()

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        allocations = await super().allocate(request, node)
        await asyncio.sleep(self.seconds)
        if node in self.broken:
            raise RuntimeError("the seat is broken")
        return allocations

    @property
    def held(self) -> dict[str, Any]:
        return dict(self._held)


async def begin(
    world: World, seats: Seats, *, pool: int = 4, nodes: str = "ab", scope: str = "Node", **clients: Any
) -> None:
    """The class has so many seats on each node. One pod has been asked about, and has one."""
    for node in nodes:
        await world.add_node(node, devices=0)
    await world.add_class("seat", nodePart="None", parameters={"pool": pool, "scope": scope})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_template("seat", "seat")
    world.start_parley(clients.get("controller"))
    world.start_driver(seats, clients.get("driver"))
    await world.settle(2)
    await world.add_pod("first", "seat")
    await world.settle(2)
    assert (await world.scheduling("first")).status.claims


async def answered(world: World, name: str) -> bool:
    """Whether the driver was asked about the pod, and answered."""
    return any(entry.driver_name == TokensDriver.name for entry in (await world.scheduling(name)).status.claims)


async def nothing_is_left(world: World, driver: Seats) -> None:
    assert driver.held == {}
    assert not (await world.client.list(CLAIMS)).items
    assert not (await world.client.list(POD_SCHEDULINGS)).items
    assert world.controller is not None
    assert len(world.controller.ledger) == 0


def test_a_later_pod_costs_one_write_of_each_object(play: Play) -> None:
    async def scenario(world: World) -> None:
        controller, driver = FaultClient(world.server.client()), FaultClient(world.server.client())
        seats = Seats()
        await begin(world, seats, controller=controller, driver=driver)
        controller.calls.clear()
        driver.calls.clear()
        await world.add_pod("later", "seat")
        await world.settle(2)
        assert await world.node_of("later")
        assert not await answered(world, "later")
        scheduling = await world.scheduling("later")
        assert (scheduling.spec.selected_node, scheduling.status.waiting_for) == (await world.node_of("later"), "")
        (claim,) = [
            one for one in (await world.client.list(CLAIMS)).items if one.metadata.name.startswith("later")
        ]
        assert driver_finalizer(TokensDriver.name) in claim.metadata.finalizers
        assert [(call.verb, call.resource.plural) for call in driver.calls if call.write] == [
            ("patch", "resourceclaims")
        ]
        writes = Counter(call.resource.untyped() for call in controller.calls if call.write)
        assert writes[POD_SCHEDULINGS.untyped()] == writes[CLAIMS.untyped()] == 1
        for name in ("first", "later"):
            await world.delete_pod(name)
        await world.settle(5)
        await nothing_is_left(world, seats)

    play(scenario)


def test_no_more_pods_are_sent_to_a_node_than_there_is_enough_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Seats(), pool=3)
        names = [f"p{number}" for number in range(5)]
        for name in names:
            await world.add_pod(name, "seat")
        await world.settle(5)
        assert Counter([await world.node_of(name) for name in ("first", *names)]) == {"a": 3, "b": 3}
        assert not all([await answered(world, name) for name in names])
        events = [event for name in names for event in await world.events_on(name)]
        assert not [event for event in events if event[0] == "AllocationFailed"]

    play(scenario)


def test_a_pod_that_its_driver_fails_is_negotiated_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        seats = Seats()
        await begin(world, seats)
        seats.broken = {await world.node_of("first")}
        for name in ("p1", "p2", "p3"):
            await world.add_pod(name, "seat")
        await world.settle(20)
        nodes = {await world.node_of(name) for name in ("p1", "p2", "p3")}
        assert nodes == {"a", "b"} - seats.broken
        for name in ("first", "p1", "p2", "p3"):
            await world.delete_pod(name)
        await world.settle(5)
        await nothing_is_left(world, seats)

    play(scenario)


def test_nodes_that_share_a_pool_do_not_get_a_pod_each_for_every_token(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Seats(), pool=8, nodes="abcdef", scope="Cluster")
        names = [f"p{number}" for number in range(10)]
        for name in names:
            await world.add_pod(name, "seat")
        await world.settle(10)
        assert sum([bool(await world.node_of(name)) for name in names]) == 7
        events = [event for name in names for event in await world.events_on(name)]
        failed = [event for event in events if event[0] == "AllocationFailed"]
        assert len(failed) <= 1  # of a pod that was asked about, while others got the last token

    play(scenario)


def test_while_a_pod_waits_the_driver_decides_who_is_next(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Seats(), pool=1, nodes="a")
        await world.add_pod("waits", "seat")
        await world.settle(5)
        await world.add_pod("late", "seat")
        await world.settle(5)
        assert await answered(world, "late")
        await world.delete_pod("first")
        await world.settle(5)
        assert [bool(await world.node_of(name)) for name in ("waits", "late")] == [True, False]

    play(scenario)


def test_a_pod_that_does_not_fit_there_goes_elsewhere(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Seats(), nodes="a")
        await world.add_node("b", devices=0)
        await world.taint("a", "maintenance", "NoSchedule")
        await world.settle(1)
        await world.add_pod("later", "seat")
        await world.settle(5)
        assert await world.node_of("later") == "b"

    play(scenario)


def test_an_allocation_that_takes_long_is_shown(play: Play) -> None:
    async def scenario(world: World) -> None:
        seats = Seats()
        await begin(world, seats)
        seats.seconds = 3 * QUIET_SECONDS
        await world.add_pod("later", "seat")
        await asyncio.sleep(QUIET_SECONDS - 1)
        assert (await world.scheduling("later")).status.waiting_for == ""
        await asyncio.sleep(2)
        assert (await world.scheduling("later")).status.waiting_for == "Allocating"
        await asyncio.sleep(3 * QUIET_SECONDS)
        assert (await world.scheduling("later")).status.waiting_for == ""
        assert await world.node_of("later")

    play(scenario)


def test_a_driver_that_sees_the_claim_first_keeps_its_finalizer(play: Play) -> None:
    async def scenario(world: World) -> None:
        calls = FaultClient(world.server.client())
        held = HeldWatch(calls, POD_SCHEDULINGS)
        await begin(world, Seats(), driver=held)
        calls.calls.clear()
        held.open.clear()
        await world.add_pod("later", "seat")
        await asyncio.sleep(0.5)
        held.open.set()
        await world.settle(2)
        assert await world.node_of("later")
        assert [(call.verb, call.subresource) for call in calls.calls if call.write] == [("patch", "status")]

    play(scenario)


def test_a_claim_whose_question_never_comes_is_let_go(play: Play) -> None:
    """The controller died between its two writes, and the pod went with the PodScheduling."""

    async def scenario(world: World) -> None:
        seats = Seats()
        await begin(world, seats)
        meta = {"name": "left", "namespace": "default", "finalizers": [driver_finalizer(TokensDriver.name)]}
        await world.create(CLAIMS, {"metadata": meta, "spec": {"resourceClassName": "seat"}})
        await world.settle(5)
        assert not [f for f in (await world.claim("left")).metadata.finalizers if f.startswith(TokensDriver.name)]

    play(scenario)


def test_of_many_pods_at_once_few_are_asked_about(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Seats(), pool=100)
        names = [f"p{number}" for number in range(60)]
        for name in names:
            await world.add_pod(name, "seat")
        await world.settle(20)
        assert all([await world.node_of(name) for name in names])
        assert sum([await answered(world, name) for name in names]) <= 10

    play(scenario)


def test_pods_do_not_wait_for_ever_for_an_answer_that_does_not_come(play: Play) -> None:
    """The driver is away. Each pod says so."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=0)
        await world.add_class("seat", nodePart="None", parameters={"pool": 9, "scope": "Node"})
        await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
        await world.add_template("seat", "seat")
        world.start_parley(drivers=[])
        names = [f"p{number}" for number in range(8)]
        for name in names:
            await world.add_pod(name, "seat")
        await world.settle(60)
        found = {(await world.scheduling(name)).status.waiting_for for name in names}
        assert found == {"DriverNotAnswering"}
        world.start_driver(Seats())
        await world.settle(60)
        assert all([await world.node_of(name) for name in names])

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_nothing_is_expected_for_a_pod_that_has_gone_while_it_was_reconciled(play: Play) -> None:
    """Nothing would end it: its claim would count for limits for ever, and a named one would go to nobody else."""

    async def scenario(world: World) -> None:
        await begin(world, Seats())
        pod = await world.pod("first")
        await world.force_delete("first")
        await world.settle(5)
        assert world.controller is not None
        paths: Any = world.controller._parts.reconciler._paths
        (native,) = [path for path in paths if isinstance(path, NativePath)]
        class_ = await world.client.get(CLASSES, "seat")
        demand: Any = SimpleNamespace(standalone=[PodClaim("seat", "first-seat", class_=class_)])
        with pytest.raises(Busy):
            native._sessions.expect(pod, demand)
        assert not world.ledger.expects(reference(pod))

    play(scenario)
