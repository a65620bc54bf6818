"""A node comes while a standalone driver considers its answer about the others, or is away."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver

from parley.api.resources import CLAIMS, CLASSES, NODES
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Client
from parley.sdk import Allocation, Answer, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Plain(Disks):
    """Knows of no other nodes than those that it is asked about."""

    async def consider(
        self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]
    ) -> Mapping[str, Answer]:
        found = await super().consider(request, nodes)
        await asyncio.sleep(5)
        return {name: Answer(answer.viable, None, answer.reasons) for name, answer in found.items()}


async def begin(world: World, disks: Disks) -> None:
    """The driver is yet to be started."""
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
    await world.add_template("disk", "disk")
    world.start_parley()


@pytest.mark.parametrize("how", ["new", "uncordoned"])
def test_a_node_that_comes_while_the_driver_considers_is_found(play: Any, how: str) -> None:
    async def scenario(world: World) -> None:
        disks = Plain(["b"])
        await world.add_node("a")
        if how == "uncordoned":
            await world.add_node("b")
            await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await begin(world, disks)
        world.start_driver(disks)
        await world.settle()
        await world.add_pod("p", "disk")
        await asyncio.sleep(2)
        if how == "new":
            await world.add_node("b")
        else:
            await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await asyncio.sleep(3600)
        assert await world.node_of("p") == "b", (await world.scheduling("p")).status.message

    play(scenario)


def test_a_node_that_comes_while_the_driver_is_away_is_found(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.client.patch(NODES, "a", {"metadata": {"labels": {"full": "yes"}}})
        disks = Plain(["b"])
        await begin(world, disks)
        await world.settle()
        await world.add_pod("p", "disk")
        await asyncio.sleep(600)
        assert (await world.scheduling("p")).status.waiting_for == "DriverNotAnswering"
        await world.add_node("b")
        await asyncio.sleep(600)
        world.start_driver(disks)
        await asyncio.sleep(3600)
        assert await world.node_of("p") == "b", (await world.scheduling("p")).status.message

    play(scenario)


class SlowToCreate(Client):
    """An API server that takes a second to create a claim, and until `meanwhile` something has happened."""

    def __init__(self, client: Client, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(client)
        self._meanwhile = meanwhile

    async def request(self, call: Call) -> bytes:
        if call.verb == "create" and call.resource == CLAIMS:
            await self._meanwhile()
            await asyncio.sleep(1)
        return await super().request(call)


@pytest.mark.scheduling_paths("native")
def test_a_class_may_change_while_a_claim_is_made_for_a_pod_that_fits_nowhere(
    play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(world: World) -> None:
        async def change() -> None:
            await world.client.patch(CLASSES, "disk", {"allocationTimeoutSeconds": 100})

        await world.add_node("a")
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.add_template("disk", "disk")
        world.start_parley(SlowToCreate(world.server.client(), change))
        world.start_driver(Plain(["a"]))
        await world.add_pod("p", "disk")
        await world.settle(5)
        await world.add_class("disk", driverName=Disks.name)
        await world.settle(5)
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": None}})
        await world.settle(60)
        assert await world.node_of("p") == "a"

    play(scenario)
    assert "Traceback" not in capsys.readouterr().out


class NewDisks(Plain):
    """Has a disk on no node until `plugged` is set."""

    def __init__(self, *nodes: str) -> None:
        super().__init__([])
        self._later = nodes
        self.plugged = asyncio.Event()

    async def follow(self, changed: Callable[[], None]) -> None:
        await self.plugged.wait()
        self.nodes = self._later
        changed()


class SlowDevices(DeviceDriver):
    """Takes a second to allocate, and until `meanwhile` something has happened."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        await self._meanwhile()
        await asyncio.sleep(1)
        return await super().allocate(request, node)


@pytest.mark.scheduling_paths("native")
def test_a_class_may_change_while_another_driver_allocates_for_a_pod_that_waited(
    play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(world: World) -> None:
        async def change() -> None:
            await world.client.patch(CLASSES, "disk", {"allocationTimeoutSeconds": 100})

        disks = NewDisks("a")
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template()
        await world.add_class("disk", driverName=disks.name)
        await world.add_template("disk", "disk")
        world.start_parley(drivers=[SlowDevices(change)])
        world.start_driver(disks)
        await world.add_pod("p", "disk", "one")
        await world.settle(10)
        disks.plugged.set()
        await world.settle(60)
        assert await world.node_of("p") == "a"

    play(scenario)
    assert "Traceback" not in capsys.readouterr().out


class SlowShelf(ShelfDriver):
    """Takes half a minute to deallocate."""

    async def deallocate(self, uid: str) -> None:
        await asyncio.sleep(30)
        await super().deallocate(uid)


class Racks(ShelfDriver):
    """The same in the controller, by another name."""

    name = "rack.example.com"


@pytest.mark.scheduling_paths("native")
def test_what_comes_free_on_a_node_of_an_earlier_round_is_found(play: Any) -> None:
    """The driver answers for the nodes of the latest round only, and proposes no others."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_node("b")
        for driver in (ShelfDriver, Racks):
            await world.add_class(driver.name, driverName=driver.name)
            await world.add_template(driver.name, driver.name)
        world.start_parley(drivers=[Racks(Behaviour({"a": 1}))], candidates=1)
        world.start_driver(SlowShelf(Behaviour(other=1)))
        await world.add_pod("first", ShelfDriver.name, nodeName="a")
        await world.settle()
        await world.add_pod("second", ShelfDriver.name, Racks.name)
        await world.settle(60)
        assert (await world.scheduling("second")).status.waiting_for == "NothingViable"
        await world.finish_pod("first")
        await world.settle(120)
        assert await world.node_of("second") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_standalone_driver_is_asked_for_a_named_claim_for_one_pod_at_a_time(play: Any) -> None:
    """Another driver allocates for the pod that began first; meanwhile the claim is expected for that pod."""

    async def scenario(world: World) -> None:
        async def waits() -> None:
            await asyncio.sleep(20)

        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_template()
        disks = Plain(["a", "b"])
        disks.seconds = 60
        await world.add_class("disk", driverName=disks.name, shareable=True)
        await world.add_claim("array", "disk")
        world.start_parley(drivers=[SlowDevices(waits)])
        world.start_driver(disks)
        await world.settle(5)
        await world.add_pod("first", "one", claims=["array"])
        await asyncio.sleep(10)
        await world.add_pod("second", claims=["array"])
        await asyncio.sleep(20)
        asked = [pod for pod in ("first", "second") if (await world.scheduling(pod)).spec.selected_node]
        assert asked == ["first"]
        await world.settle(90)
        assert await world.node_of("first") == await world.node_of("second") != ""
        assert len(disks.tried) == 1

    play(scenario)
