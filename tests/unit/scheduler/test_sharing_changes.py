"""Classes that become shareable, or stop being so, while a driver allocates: the claim's record, its built-in
claim, by which schedulers go, and the controller's memory agree afterwards."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, CLASSES
from parley.control.objects.mirror import is_shareable
from parley.kube.client import Call, Client
from parley.sdk.recorded import allocation_record
from parley.sdk.standalone import allocating

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


class SlowDeletions(Client):
    """Deletions of built-in claims arrive late, as if very many claims of the class were reconciled before."""

    seconds = 0.0

    async def request(self, call: Call) -> bytes:
        if call.verb == "delete" and call.resource == BUILTIN_CLAIMS:
            await asyncio.sleep(self.seconds)
        return await super().request(call)


async def check(world: World, *, shareable: bool) -> None:
    """All agree, and both pods run with the claim `common` if it is shareable, else one of them."""
    claim, mirror, (holding,) = await world.claim("common"), await world.mirror("common"), world.ledger
    assert mirror is not None
    assert claim.status.allocation is not None
    found = (claim.status.allocation.shareable, is_shareable(mirror), holding.shareable)
    assert found == (shareable, shareable, shareable)
    running = [name for name in ("first", "second") if await world.node_of(name)]
    assert len(running) == (2 if shareable else 1)
    assert sorted(user.name for user in mirror.status.reserved_for) == running
    assert sorted(user.name for user in holding.pods.values()) == running


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("late", [0.0, 4.0, 10.0])
@pytest.mark.parametrize("before", [False, True], ids=["becomes shareable", "becomes exclusive"])
def test_while_a_driver_allocates_for_a_pod(play: Play, before: bool, late: float) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world, shareable=before)
        client, behaviour = SlowDeletions(world.server.client()), Behaviour(other=4, trouble=slow(5))
        client.seconds = late
        world.start_parley(client, drivers=[ShelfDriver(behaviour)])
        await world.add_claim("common", "shelf")
        await world.add_pod("first", claims=["common"])
        for _ in range(100):
            await asyncio.sleep(0 if behaviour.allocated else 0.1)
        assert behaviour.allocated
        await world.client.patch(CLASSES, "shelf", {"shareable": not before})
        await asyncio.sleep(5)
        await world.add_pod("second", claims=["common"])
        await world.settle()
        await check(world, shareable=not before and late < 5)  # what was recorded meanwhile stays as it is

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_an_immediate_claim_that_becomes_exclusive_while_its_driver_allocates_serves_one_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world, shareable=True)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=4, trouble=slow(5)))])
        await world.add_claim("common", "shelf", mode="Immediate")
        await asyncio.sleep(2)
        await world.client.patch(CLASSES, "shelf", {"shareable": False})
        for name in ("first", "second"):
            await world.add_pod(name, claims=["common"])
            await world.settle()
        await check(world, shareable=False)

    play(scenario)


def test_an_immediate_claim_that_becomes_shareable_while_its_standalone_driver_allocates_serves_one_pod(
    play: Play,
) -> None:
    """Its driver has recorded it as the class was when it began; the built-in claim was recreated meanwhile."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        disks = Disks(["a"], seconds=20)
        await world.add_class("disk", driverName=disks.name, shareable=False)
        world.start_parley()
        world.start_driver(disks)
        await world.add_claim("common", "disk", mode="Immediate")
        await asyncio.sleep(10)
        await world.client.patch(CLASSES, "disk", {"shareable": True})
        for name in ("first", "second"):
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(60)
        await check(world, shareable=False)

    play(scenario)


async def never_shareable(world: World, monkeypatch: pytest.MonkeyPatch) -> Disks:
    """A node, a shareable class, and its standalone driver, which records no claim as shareable."""

    def recorded(*args: Any, **_: Any) -> dict[str, Any]:
        return allocation_record(*args, shareable=False)

    monkeypatch.setattr(allocating, "allocation_record", recorded)
    await world.add_node("a")
    disks = Disks(["a"])
    await world.add_class("disk", driverName=disks.name, shareable=True)
    world.start_parley()
    world.start_driver(disks)
    return disks


@pytest.mark.parametrize("mode", ["", "Immediate"])
def test_a_standalone_driver_that_never_records_that_a_claim_is_shareable_allocates_it_once(
    play: Play, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The protocol asks for that, and drivers may leave it out."""

    async def scenario(world: World) -> None:
        disks = await never_shareable(world, monkeypatch)
        await world.add_claim("common", "disk", mode=mode)
        await world.add_pod("first", claims=["common"])
        await asyncio.sleep(600)
        assert await world.node_of("first") == "a"
        assert disks.tried == ["a"]

    play(scenario)


def test_a_claim_that_schedulers_share_against_its_record_is_free_when_all_pods_have_ended(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record holds one pod; the built-in claim, by which schedulers go, several."""

    async def scenario(world: World) -> None:
        disks = await never_shareable(world, monkeypatch)
        await world.add_claim("common", "disk")
        for name in ("first", "second", "third"):
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(30)
        assert [await world.node_of(name) for name in ("first", "second", "third")] == ["a", "a", "a"]
        for name in ("first", "second", "third"):
            await world.delete_pod(name)
        await asyncio.sleep(300)
        assert disks.held == {}
        assert len(world.ledger) == 0

    play(scenario)
