"""A write about a claim that was given up and arrives late: what was decided since stays as it is."""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.conditions import ready
from tests.support.late_writes import LateClient, Which
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, CLASSES, NODES
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Client, ServerError
from parley.sdk import Driver
from parley.sdk.recorded import driver_of_record

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def allocates(call: Call) -> bool:
    return call.resource == BUILTIN_CLAIMS and bool(((call.body or {}).get("status") or {}).get("allocation"))


def records_a_claim(call: Call) -> bool:
    return call.resource == CLAIMS and call.subresource == "status"


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_a_late_reservation_for_a_pod_that_is_gone_is_refused(play: Any, mode: str) -> None:
    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), records_a_claim)
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client)
        await world.add_claim("disk", mode=mode)
        await world.settle()

        client.armed = True
        await world.add_pod("p", claims=["disk"])
        await client.given_up.wait()
        await world.force_delete("p")
        await world.settle()

        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        claim = await world.claim("disk")
        assert not claim.status.reserved_for
        assert (claim.status.allocation is not None) == (mode == "Immediate")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        assert await world.mirror("disk") is None
        assert len(world.ledger) == 0

    play(scenario)


def clears(call: Call) -> bool:
    cleared = call.resource == BUILTIN_CLAIMS and call.subresource == "status"
    return cleared and "allocation" in call.body["status"] and call.body["status"]["allocation"] is None


class BindingRefused(Client):
    """The first binding fails."""

    failed = False

    async def request(self, call: Call) -> bytes:
        if call.subresource == "binding" and not self.failed:
            self.failed = True
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        return await super().request(call)


@pytest.mark.scheduling_paths("extender")
@pytest.mark.parametrize("shareable", [False, True], ids=["exclusive", "shareable"])
@pytest.mark.parametrize("named", [False, True], ids=["generated", "named"])
def test_a_pod_is_not_bound_with_what_a_late_write_may_clear(play: Any, named: bool, shareable: bool) -> None:
    """Its first binding failed, and so did releasing what it had: it has that still when it is tried again."""

    async def scenario(world: World) -> None:
        client = LateClient(BindingRefused(world.server.client()), clears)
        client.armed = True
        await world.add_node("a", devices=1)
        await world.add_class(shareable=shareable)
        await world.add_template()
        await world.add_claim("disk")
        world.start_parley(client)
        await world.settle()
        await (world.add_pod("p", claims=["disk"]) if named else world.add_pod("p", "one"))
        await client.given_up.wait()
        await world.settle()
        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        assert (await world.pod("p")).status.phase == "Running"

    play(scenario)


def notes(call: Call) -> bool:
    """Notes that a node owes a receipt."""
    return call.resource == CLAIM_RELEASES and call.verb == "create"


def asks(call: Call) -> bool:
    """Lets the node answer."""
    return call.resource == CLAIM_RELEASES and call.verb == "patch"


def tells(call: Call) -> bool:
    return records_a_claim(call) and "Releasing" in str(call.body["status"].get("conditions"))


def test_a_late_question_to_a_node_is_refused(play: Any) -> None:
    """The node has answered the one that followed, and may be asked again when others have used the claim."""

    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), asks, late=60)
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        world.start_parley(client)
        await world.add_claim("disk")
        await world.add_pod("p1", claims=["disk"])
        await world.settle()
        client.armed = True
        await world.force_delete("p1")
        await asyncio.sleep(20)
        for name in ("p2", "p3"):
            await world.add_pod(name, claims=["disk"])
        await asyncio.sleep(10)
        await world.force_delete("p2")
        await world.settle()

        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        assert (await world.pod("p3")).status.phase == "Running"
        (release,) = (await world.client.list(CLAIM_RELEASES)).items
        assert not release.status.allocation_cleared

    play(scenario)


def test_late_words_about_a_node_are_refused(play: Any) -> None:
    """The node has answered, and the claim is in use again."""

    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), tells)
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client)
        await world.add_claim("disk")
        await world.add_pod("p1", claims=["disk"])
        await world.settle()
        await world.add_pod("p2", claims=["disk"])
        client.armed = True
        await world.force_delete("p1")
        await world.settle()

        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        assert (await world.pod("p2")).status.phase == "Running"
        claim = await world.claim("disk")
        assert [user.name for user in claim.status.reserved_for] == ["p2"]
        assert ready(claim) == "Ready"

    play(scenario)


def test_a_release_that_is_noted_late_keeps_nothing_for_ever(play: Any) -> None:
    """The node has answered the one that followed; it is asked once more when the claim is not used any more."""

    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), notes)
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client)
        await world.add_claim("disk")
        await world.add_pod("p1", claims=["disk"])
        await world.settle()
        await world.add_pod("p2", claims=["disk"])
        client.armed = True
        await world.force_delete("p1")
        await world.settle()

        assert client.arrived is not None
        assert (await world.pod("p2")).status.phase == "Running"
        await world.delete_pod("p2")
        await world.settle()
        assert (await world.client.list(CLAIM_RELEASES)).items == ()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"
        assert len(world.ledger) == 0

    play(scenario)


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
def test_a_record_that_an_earlier_leader_wrote_late_is_cleared(play: Any, deleted: bool) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_claim("disk")
        await world.add_pod("p1", claims=["disk"])
        await world.settle()
        late = (await world.client.get(CLAIMS.untyped(), "disk", "default"))["status"]
        await world.delete_pod("p1")
        await world.settle()

        await world.client.patch(CLAIMS, "disk", {"status": late}, "default", subresource="status")
        if deleted:
            await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        if deleted:
            assert await world.mirror("disk") is None
            return
        claim = await world.claim("disk")
        assert claim.status.allocation is None
        assert not claim.status.reserved_for
        await world.add_pod("p2", claims=["disk"])
        await world.settle()
        assert (await world.pod("p2")).status.phase == "Running"

    play(scenario)


def records_an_allocation(call: Call) -> bool:
    return records_a_claim(call) and bool(((call.body or {}).get("status") or {}).get("allocation"))


class RecordsAfterIt(Client):
    """Records no allocation of a claim before the late write has arrived."""

    def __init__(self, client: Client, late: LateClient) -> None:
        super().__init__(client)
        self._late = late

    async def request(self, call: Call) -> bytes:
        if records_an_allocation(call) and self._late.arrived is not None:
            await asyncio.wait([self._late.arrived])
        return await super().request(call)


def test_a_record_that_an_earlier_leader_wrote_while_another_one_allocates_is_replaced(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), records_an_allocation, late=60.0)
        client.armed = True
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client)
        await world.add_claim("disk", mode="Immediate")
        await client.given_up.wait()
        await world.crash()
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.add_node("b", devices=1)
        world.start_parley(RecordsAfterIt(world.server.client(), client))
        await world.add_pod("p", claims=["disk"])
        await world.settle(400)
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"

        assert (await world.pod("p")).status.phase == "Running"
        allocation = (await world.claim("disk")).status.allocation
        assert allocation is not None
        assert [(d.pool, d.device) for d in allocation.handles[0].devices] == [("b", "gpu-0")]
        assert list(await world.devices()) == [("b", "gpu-0")]

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_so_is_one_of_the_driver_that_the_class_had_then(play: Any, mode: str) -> None:
    def drivers() -> list[Driver[Any, Any]]:
        return [DeviceDriver(), ShelfDriver(Behaviour(other=1))]

    async def scenario(world: World) -> None:
        client = LateClient(world.server.client(), records_an_allocation, late=60.0)
        client.armed = True
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(client, drivers())
        await world.add_claim("disk", mode=mode)
        await world.add_pod("p", claims=["disk"])
        await client.given_up.wait()
        await world.crash()
        await world.client.patch(CLASSES, "gpu", {"driverName": ShelfDriver.name})
        world.start_parley(RecordsAfterIt(world.server.client(), client), drivers())
        await world.settle(400)
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"

        assert (await world.pod("p")).status.phase == "Running"
        assert driver_of_record(await world.claim("disk")) == ShelfDriver.name

    play(scenario)


def answers_an_offer(call: Call) -> bool:
    return call.resource == BUILTIN_CLAIMS and bool(((call.body or {}).get("status") or {}).get("devices"))


class AfterIt(Client):
    """Changes no label of a built-in claim before the late write has arrived."""

    def __init__(self, client: Client, late: LateClient) -> None:
        super().__init__(client)
        self._late = late

    async def request(self, call: Call) -> bytes:
        if call.resource == BUILTIN_CLAIMS and "labels" in ((call.body or {}).get("metadata") or {}):
            assert self._late.arrived is not None
            await asyncio.wait([self._late.arrived])
        return await super().request(call)


async def cut_off(world: World, which: Which, **class_: Any) -> LateClient:
    """A leader dies while its write for the pod "waits" is on its way; one of a higher priority comes then."""
    client = LateClient(world.server.client(), which, late=60.0)
    await world.add_node("a", devices=1)
    await world.add_class(**class_)
    await world.add_template("one")
    world.start_parley(client)
    await world.settle(2)
    client.armed = True
    await world.add_pod("waits", "one")
    await client.given_up.wait()
    await world.crash()
    await world.add_pod("urgent", "one", priority=10)
    assert client.arrived is not None
    return client


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize(
    ("which", "class_"),
    [(allocates, {}), (answers_an_offer, {"placement": "Exact"})],
    ids=["allocation", "allocation of an offer"],
)
def test_an_allocation_of_a_leader_that_was_cut_off_is_refused(
    play: Any, watcher: Any, which: Which, class_: dict[str, Any]
) -> None:
    """Its pod waits as it did, and the one device may be given to one of a higher priority."""

    async def scenario(world: World) -> None:
        watching = watcher(world)
        client = await cut_off(world, which, **class_)
        world.start_parley()
        await world.settle(90)
        assert client.arrived is not None
        assert client.arrived.result() == "refused"
        assert watching.faults == []
        assert sorted([await world.node_of("urgent"), await world.node_of("waits")]) == ["", "a"]
        watching.stop()

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_a_former_leader_wrote_at_the_last_moment_counts(play: Any) -> None:
    """Between the new leader's list and its own change of the claim."""

    async def scenario(world: World) -> None:
        client = await cut_off(world, allocates)
        world.start_parley(AfterIt(world.server.client(), client))
        await world.settle(90)
        assert client.arrived is not None
        assert client.arrived.result() == "accepted"
        assert (await world.node_of("urgent"), await world.node_of("waits")) == ("", "a")

    play(scenario)
