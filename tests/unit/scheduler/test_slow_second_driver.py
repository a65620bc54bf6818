"""A pod with a named claim whose standalone driver is quick, and a second claim whose driver is slow."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLAIMS, CLASSES, PODS
from parley.drivers.tokens import TokensDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, disks: Disks, nodes: str) -> TokensDriver:
    for node in nodes:
        await world.add_node(node)
    await world.add_class("seat", nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await world.client.patch(CLASSES, "seat", {"driverName": TokensDriver.name})
    await world.add_template("seat", "seat")
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
    await world.add_template("disk", "disk")
    await world.add_claim("mine", "seat")
    world.start_parley()
    driver = TokensDriver()
    world.start_driver(driver)
    world.start_driver(disks)
    await world.settle()
    return driver


@pytest.mark.parametrize("how", ["delete", "force", "finish"])
def test_what_the_quick_one_allocated_for_a_pod_that_goes_is_given_back(play: Any, how: str) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a"], seconds=1000)
        tokens = await begin(world, disks, "a")
        await world.add_pod("p", "disk", claims=["mine"])
        await world.settle(20)
        assert list(disks.held.values()) == ["a"]
        assert len(tokens._held) == 1
        if how == "finish":
            failed = {"status": {"phase": "Failed"}}
            await world.client.patch(PODS, "p", failed, "default", subresource="status")
        else:
            await (world.delete_pod if how == "delete" else world.force_delete)("p")
        await world.settle(600)
        assert disks.held == {}
        assert (await world.claim("mine")).status.allocation is None
        assert tokens._held == {}
        await world.add_pod("q", "seat")
        await world.settle(600)
        assert await world.node_of("q") == "a"

    play(scenario)


@pytest.mark.parametrize("kind", ["broken", "flaky"])
def test_where_the_slow_one_fails_the_pod_goes_elsewhere_with_both(play: Any, kind: str) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=20)
        setattr(disks, kind, {"a"})
        await begin(world, disks, "ab")
        for name in ("p", "q"):  # one of them is sent to node a first
            await world.add_pod(name, "disk", claims=["mine"])
            await asyncio.sleep(1000)
            assert await world.node_of(name) == "b", (await world.scheduling(name)).status.message
            await world.delete_pod(name)
            await world.settle(600)

    play(scenario)


def test_what_the_slow_one_allocated_is_given_back_if_the_others_claim_fits_elsewhere_only(play: Any) -> None:
    """The other claim was replaced meanwhile, and another pod took its device. A named claim is recorded without
    users."""

    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=20)
        await world.add_class()
        await world.add_template("one")
        await begin(world, disks, "ab")
        for node in "ab":
            await world.publish(node, ["gpu-0"])
        await world.add_claim("gpu", "gpu")
        await world.add_claim("data", "disk")
        await world.settle()
        await world.add_pod("p", claims=["data", "gpu"])
        await asyncio.sleep(10)
        (node,) = disks.held.values()
        await world.client.patch(CLAIMS, "gpu", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(CLAIMS, "gpu", "default")
        await world.add_pod("q", "one", nodeName=node)
        await asyncio.sleep(5)
        await world.add_claim("gpu", "gpu")
        await asyncio.sleep(1000)
        assert await world.node_of("p") == ("a" if node == "b" else "b")

    play(scenario)
