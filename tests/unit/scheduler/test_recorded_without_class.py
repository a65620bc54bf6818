"""What a standalone driver records for a claim before its class exists. No admission policy prevents that: the API
server does not know whose the claim is."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLAIMS
from parley.drivers.device import DeviceDriver
from parley.sdk.recorded import driver_of_record

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

OTHERS = "others.example.com"


async def recorded(world: World, driver: str, mode: str) -> None:
    """Claim `early`, which the driver has allocated by its record, and whose class is missing."""
    for node in "ab":
        await world.add_node(node, devices=1)
    await world.add_claim("early", "late", mode=mode)
    await world.settle()
    allocation = {"handles": [{"driverName": driver, "data": {"disk": "a"}}]}
    status = {"status": {"driverName": driver, "allocation": allocation}}
    await world.client.patch(CLAIMS, "early", status, "default", subresource="status")
    await world.settle()


@pytest.mark.parametrize("mode", ["Immediate", "WaitForFirstConsumer"])
@pytest.mark.parametrize("owner", [Disks.name, DeviceDriver.name])
@pytest.mark.parametrize("away", [False, True], ids=["", "while the controller is away"])
def test_no_pod_runs_with_what_a_driver_recorded_before_the_class_was_another_drivers(
    play: Any, mode: str, owner: str, away: bool
) -> None:
    async def scenario(world: World) -> None:
        disks = Disks("ab")
        world.start_parley()
        world.start_driver(disks)
        if away:
            await world.crash()
        await recorded(world, OTHERS, mode)
        await world.add_class("late", driverName=owner)
        if away:
            world.start_parley()
        await world.add_pod("p", claims=["early"])
        await world.settle()
        assert await world.node_of("p") != ""
        assert driver_of_record(await world.claim("early")) in (owner, "")
        assert [holding.driver for holding in world.ledger] == [owner]

    play(scenario)


def test_what_the_classs_own_driver_recorded_is_used_once_the_class_is_there(play: Any) -> None:
    """The controller sees the class later than the driver does."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await recorded(world, Disks.name, "Immediate")
        await world.add_class("late", driverName=Disks.name)
        await world.add_pod("p", claims=["early"])
        await world.settle()
        assert await world.node_of("p") != ""
        assert [holding.allocation.data for holding in world.ledger] == [{"disk": "a"}]

    play(scenario)
