"""What a driver restores at start: what is recorded, and where; what has only its finalizer may be held."""

from collections.abc import Callable
from typing import Any

from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, ShelfDriver, World

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS
from parley.sdk import Held

Play = Callable[[Callable[[World], Any]], None]


class Noting(ShelfDriver):
    """Keeps what it restored, and what it deallocated."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: list[Held] = []
        self.deallocated: list[str] = []

    def restore(self, held: Held) -> None:
        self.restored.append(held)

    async def deallocate(self, uid: str) -> None:
        self.deallocated.append(uid)


async def record(world: World, claim: str, driver: str = DRIVER, **allocation: Any) -> str:
    """The claim is allocated by its record; returns its UID."""
    await world.add_claim(claim)
    handle = {"driverName": driver, "data": {"size": 1}}
    status = {"driverName": driver, "allocation": {"handles": [handle], **allocation}}
    await world.client.patch(CLAIMS, claim, {"status": status}, NAMESPACE, subresource="status")
    return (await world.claim(claim)).metadata.uid


def test_the_node_is_the_one_that_the_record_selects(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class()
        fields = [{"key": "metadata.name", "operator": "In", "values": ["b"]}]
        labels = [{"key": "name", "operator": "In", "values": ["b"]}]
        named = await record(world, "named", availableOnNodes={"nodeSelectorTerms": [{"matchFields": fields}]})
        by_label = await record(
            world, "by-label", availableOnNodes={"nodeSelectorTerms": [{"matchExpressions": labels}]}
        )
        everywhere = await record(world, "everywhere")
        driver = Noting()
        world.start(driver)
        await world.settle()

        assert {held.uid: held.node for held in driver.restored} == {named: "b", by_label: "b", everywhere: None}

    play(scenario)


def test_a_record_without_handles_is_of_the_driver_that_the_status_names(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        uid = await record(world, "disk", handles=[])
        await record(world, "other", driver="other.example.com", handles=[])
        driver = Noting()
        world.start(driver)
        await world.settle()
        assert [held.uid for held in driver.restored] == [uid]
        await world.take_back("disk")
        await world.settle()

        assert driver.deallocated == [uid]
        assert (await world.claim("disk")).status.allocation is None

    play(scenario)


def test_what_has_only_the_finalizer_is_not_restored_and_is_given_back_if_no_pod_needs_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_claim("begun")
        meta = {"finalizers": [driver_finalizer(DRIVER)], "annotations": {f"{DRIVER}/allocating-on": "a"}}
        await world.client.patch(CLAIMS, "begun", {"metadata": meta}, NAMESPACE)
        driver = Noting()
        world.start(driver)
        await world.settle()

        claim = await world.claim("begun")
        assert (driver.restored, driver.deallocated) == ([], [claim.metadata.uid])
        assert claim.metadata.finalizers == ()

    play(scenario)
