"""Classes that appear, change or vanish while pods wait for them, and while pods run."""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart, slow

from parley.api.resources import BUILTIN_CLAIMS, CLASSES
from parley.kube.client import ServerError
from parley.kube.informer import Informer

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class OtherShelfDriver(ShelfDriver):
    """A second driver of the same kind."""

    name: ClassVar[str] = "other.example.com"


def only_on(node: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeSelectorTerms": [term]}


async def begin(world: World, places: int = 4, **class_: Any) -> Behaviour:
    behaviour = Behaviour(other=places)
    for node in ("a", "b"):
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour), OtherShelfDriver(Behaviour(other=9))])
    return behaviour


def test_a_claim_that_is_exclusive_when_the_driver_is_done_serves_one_pod_at_a_time(play: Any) -> None:
    """Its class was shareable when the driver began."""

    async def scenario(world: World) -> None:
        behaviour = await begin(world, shareable=True)
        behaviour.trouble = slow(5)
        await world.add_claim("common", "shelf")
        await world.add_pod("first", claims=["common"])
        for _ in range(100):
            await asyncio.sleep(0 if behaviour.allocated else 0.1)
        assert behaviour.allocated
        await world.client.patch(CLASSES, "shelf", {"shareable": False})
        await world.add_pod("second", claims=["common"])
        await world.settle()
        running = [name for name in ("first", "second") if (await world.pod(name)).status.phase == "Running"]
        assert len(running) == 1
        mirror = await world.mirror("common")
        assert mirror is not None
        assert [user.name for user in mirror.status.reserved_for] == running
        await world.finish_pod(running[0])
        await world.settle()
        assert {await world.node_of("first"), await world.node_of("second")} <= {"a", "b"}

    play(scenario)


def test_a_claim_whose_class_is_gone_when_the_driver_is_done_is_shared_as_it_was_to_be(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, shareable=True)
        behaviour.trouble = slow(5)
        await world.add_claim("common", "shelf")
        await world.add_pod("first", claims=["common"])
        for _ in range(100):
            await asyncio.sleep(0 if behaviour.allocated else 0.1)
        assert behaviour.allocated
        await world.client.delete(CLASSES, "shelf")
        await world.settle()
        await world.add_class("shelf", driverName=ShelfDriver.name, shareable=True)
        await world.add_pod("second", claims=["common"])
        await world.settle()
        assert [(await world.pod(name)).status.phase for name in ("first", "second")] == ["Running", "Running"]

    play(scenario)


async def change(world: World, **class_: Any) -> None:
    await world.client.patch(CLASSES, "shelf", class_)
    await world.settle()


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ({"parameters": {"times": 9}}, {"parameters": {"times": 2}}, "NothingViable"),
        ({"suitableNodes": only_on("none")}, {"suitableNodes": only_on("b")}, "NoCandidates"),
        ({"parameters": {"tims": 9}}, {"parameters": None}, "ParametersInvalid"),
        ({"driverName": "absent.example.com"}, {"driverName": ShelfDriver.name}, "DriverNotAnswering"),
        ({"parameters": {"times": 9}}, {"driverName": OtherShelfDriver.name}, "NothingViable"),
        ({"limits": [{"claims": 0}]}, {"limits": []}, "LimitReached"),
    ],
    ids=["parameters", "suitable-nodes", "bad-parameters", "missing-driver", "other-driver", "limits"],
)
@pytest.mark.parametrize("kind", ["generated", "named"])
def test_a_change_serves_the_pods_that_wait(
    play: Any, before: dict[str, Any], after: dict[str, Any], code: str, kind: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, **before)
        await world.add_claim("one", "shelf")
        for name in ("p", "q"):
            templates = ["shelf"] if kind == "generated" or name == "q" else []
            await world.add_pod(name, *templates, claims=[] if templates else ["one"])
        await world.settle(40)
        assert (await world.scheduling("p")).status.waiting_for == code
        await change(world, **after)
        assert await world.node_of("p") != ""
        assert await world.node_of("q") != ""

    play(scenario)


def test_a_class_that_vanishes_while_pods_wait_and_comes_back_otherwise(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, places=0)
        await world.add_pod("p", "shelf")
        await world.settle()
        await world.client.delete(CLASSES, "shelf")
        await world.settle()
        status = (await world.scheduling("p")).status
        assert status.waiting_for == "ClassNotFound"
        await world.add_class("shelf", driverName=OtherShelfDriver.name)
        await world.settle()
        assert await world.node_of("p") != ""

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "and-the-controller-restarts"])
@pytest.mark.parametrize("kind", ["generated", "named"])
@pytest.mark.parametrize(
    "change_", [None, {"driverName": OtherShelfDriver.name}, {"parameters": {"tims": 1}}], ids=str
)
def test_what_pods_hold_is_given_back_also_if_the_class_changed_or_is_gone(
    play: Any, kind: str, change_: dict[str, Any] | None, restarts: bool
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, places=1)
        await world.add_claim("one", "shelf")
        generated = kind == "generated"
        await world.add_pod("p", *["shelf"] * generated, claims=["one"][generated:])
        await world.settle()
        assert await world.node_of("p") != ""
        if change_ is None:
            await world.client.delete(CLASSES, "shelf")
        else:
            await world.client.patch(CLASSES, "shelf", change_)
        if restarts:
            await restart(world, [ShelfDriver(behaviour), OtherShelfDriver(Behaviour(other=9))])
        await world.settle()
        assert (await world.pod("p")).status.phase == "Running"
        (name,) = [m.metadata.name for m in await world.mirrors() if m.status.allocation is not None]
        cleared = {"status": {"allocation": None, "reservedFor": None}}
        await world.client.patch(BUILTIN_CLAIMS, name, cleared, "default", subresource="status")
        await world.settle()
        mirror = await world.mirror(name)
        assert mirror is not None
        assert mirror.status.allocation is not None
        assert mirror.status.allocation.devices.results[0].driver == ShelfDriver.name
        assert world.controller is not None
        assert len(world.controller.ledger) == 1
        await world.delete_pod("p")
        await world.settle()
        assert len(world.controller.ledger) == 0
        assert behaviour.calls["deallocate"] == 1
        assert not [m for m in await world.mirrors() if m.status.allocation is not None]
        assert (await world.claim("one")).status.allocation is None

    play(scenario)


@pytest.mark.parametrize(
    "after",
    [{"parameters": {"tims": 1}}, {"driverName": "absent.example.com"}, {"driverName": OtherShelfDriver.name}],
    ids=["bad-parameters", "missing-driver", "other-driver"],
)
def test_a_class_that_changes_while_the_scheduler_chooses(play: Any, after: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, placement="Exact")
        offered = asyncio.Event()

        def changed(_: Any, new: Any) -> None:
            if new is not None and new.status.allocation is not None:
                offered.set()

        seen = Informer(world.client, BUILTIN_CLAIMS, on_change=changed)
        task = asyncio.create_task(seen.run())
        await world.add_pod("p", "shelf")
        await offered.wait()
        await world.client.patch(CLASSES, "shelf", after)
        task.cancel()
        await world.settle(70)
        if after.get("driverName") == OtherShelfDriver.name:
            assert await world.node_of("p") != ""
        else:
            await world.client.patch(CLASSES, "shelf", {"parameters": None, "driverName": ShelfDriver.name})
            await world.settle(70)
            assert await world.node_of("p") != ""

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender has an order of its own
def test_a_class_becomes_shareable(play: Any) -> None:
    """A claim in use stays exclusive until it is free; then several pods may use it."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_claim("one", "shelf")
        for name in ("p", "q", "r"):
            await world.add_pod(name, claims=["one"])
        await world.settle()
        await change(world, shareable=True)
        running = [name for name in ("p", "q", "r") if await world.node_of(name)]
        assert running == ["p"]
        await world.delete_pod("p")
        await world.settle()
        assert [name for name in ("q", "r") if await world.node_of(name)] == ["q", "r"]

    play(scenario)


def test_a_class_becomes_exclusive(play: Any) -> None:
    """Who shares the claim already goes on; after them it serves one pod at a time."""

    async def scenario(world: World) -> None:
        await begin(world, shareable=True)
        await world.add_claim("one", "shelf")
        for name in ("p", "q"):
            await world.add_pod(name, claims=["one"])
        await world.settle()
        await change(world, shareable=False)
        assert [name for name in ("p", "q") if await world.node_of(name)] == ["p", "q"]
        await world.delete_pod("p")
        await world.delete_pod("q")
        await world.settle()
        for name in ("r", "s"):
            await world.add_pod(name, claims=["one"])
        await world.settle()
        assert [name for name in ("r", "s") if await world.node_of(name)] == ["r"]
        await world.delete_pod("r")
        await world.settle()
        assert await world.node_of("s") != ""

    play(scenario)


def test_a_write_of_a_classs_status_wakes_nobody(play: Any) -> None:
    async def scenario(world: World) -> None:
        asked: list[str] = []

        class Asked(ShelfDriver):
            def viable(self, request: Any, nodes: Any) -> Any:
                asked.append(request.pod.name)
                return super().viable(request, nodes)

        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        world.start_parley(drivers=[Asked(Behaviour(other=0))])
        await world.add_claim("now", "shelf", mode="Immediate")
        for name in ("p", "q", "r"):
            await world.add_pod(name, "shelf")
        await world.settle()
        before, waits = len(asked), await world.scheduling("p")
        for free in range(3):
            status = {"status": {"total": 9, "free": free}}
            await world.client.patch(CLASSES, "shelf", status, subresource="status")
            await asyncio.sleep(1)
        assert asked[before:] == []
        await world.client.patch(CLASSES, "shelf", {"scoreWeight": 2})
        await asyncio.sleep(1)
        assert asked[before:] != [], "what the class says counts"
        assert waits.status.waiting_for == "NothingViable"

    play(scenario)


def test_a_class_that_is_shareable_only_for_a_moment_keeps_nobody_waiting(play: Any) -> None:
    """It changes back before the claim's mirror is recreated for it."""

    async def scenario(world: World) -> None:
        refused: list[NumberedCall] = []

        def fail_once(call: NumberedCall) -> None:
            if call.verb == "delete" and call.resource == BUILTIN_CLAIMS and not refused:
                refused.append(call)
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        drivers = [ShelfDriver(Behaviour(other=4))]
        world.start_parley(FaultClient(world.server.client(), before=fail_once), drivers=drivers)
        await world.add_claim("mine", "shelf")
        await world.settle()
        await world.client.patch(CLASSES, "shelf", {"shareable": True})
        await world.add_pod("p", claims=["mine"])
        for _ in range(100):
            await asyncio.sleep(0)
        assert refused
        await world.client.patch(CLASSES, "shelf", {"shareable": False})
        await world.settle()
        assert await world.node_of("p")

    play(scenario)
