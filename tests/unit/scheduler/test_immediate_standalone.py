"""Limits of classes hold for immediate claims of standalone drivers, which the controller accepts one by one."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.shelf import restart

from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NAMESPACES
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

NODES = "abc"


async def limited(world: World, disks: Disks, claims: int = 1) -> None:
    """The namespace may have so many disks."""
    await prepare(world, disks)
    await world.client.patch(CLASSES, "disk", {"limits": [{"claims": claims}]})
    await world.settle()


def a_claim_of_others(name: str) -> dict[str, Any]:
    """A built-in claim that Parley did not create."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    return {**about, "spec": {"devices": {"requests": [request]}}}


async def allocated(world: World) -> set[str]:
    """The names of claims that are."""
    claims = (await world.client.list(CLAIMS)).items
    return {claim.metadata.name for claim in claims if claim.status.allocation is not None}


def why_not(claim: ResourceClaim) -> set[tuple[str, str]]:
    """Reason and message where it is not accepted, or not allocated."""
    conditions = [c for c in claim.status.conditions if c.type in ("Accepted", "Allocated")]
    return {(c.reason, c.message) for c in conditions if c.status == "False"}


def test_a_claim_over_the_limit_waits_until_there_is_room(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(NODES)
        await limited(world, disks)
        for name in ("first", "second", "third"):
            await world.add_claim(name, "disk", mode="Immediate")
            await world.settle()
        words = (
            "namespace default holds 1 of 1 claims that class disk allows it, 1 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].claims"
        )
        assert await allocated(world) == {"first"}
        assert why_not(await world.claim("third")) == {("LimitReached", words)}
        await world.add_pod("p", claims=["third"])
        await world.settle()
        assert words in (await world.scheduling("p")).status.message
        await world.client.delete(CLAIMS, "first", "default")
        await world.settle()
        assert await allocated(world) == {"second"}
        await world.client.patch(CLASSES, "disk", {"limits": []})
        await world.settle()
        assert await allocated(world) == {"second", "third"}
        assert await world.node_of("p")
        assert why_not(await world.claim("third")) == set()

    play(scenario)


def test_claims_that_come_at_once_are_no_more_than_the_limit(play: Any) -> None:
    async def scenario(world: World) -> None:
        await limited(world, Disks(NODES, seconds=30), claims=2)
        for name in NODES:
            await world.add_claim(name, "disk", mode="Immediate")
        await world.settle()
        assert len(await allocated(world)) == 2

    play(scenario)


def test_a_claim_that_was_accepted_and_waits_for_the_driver_counts_over_a_restart_until_it_goes(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks("")
        await limited(world, disks)
        await world.add_claim("first", "disk", mode="Immediate")
        await world.settle()
        await world.add_claim("second", "disk", mode="Immediate")
        await restart(world, [DeviceDriver()], after=20)
        await world.settle()
        assert {reason for reason, _ in why_not(await world.claim("first"))} == {"NothingViable"}
        assert {reason for reason, _ in why_not(await world.claim("second"))} == {"LimitReached"}
        disks.nodes = NODES
        await world.client.delete(CLAIMS, "first", "default")
        await world.settle()
        assert await allocated(world) == {"second"}

    play(scenario)


def test_nothing_speaks_of_the_limit_once_there_is_room(play: Any) -> None:
    """The driver is away."""

    async def scenario(world: World) -> None:
        disks = Disks(NODES)
        await prepare(world, disks, nodes="a", devices=0)
        await world.add_class("away", driverName="away.example.com", limits=[{"claims": 1}])
        for name in ("first", "second"):
            await world.add_claim(name, "away", mode="Immediate")
            await world.settle()
        assert {reason for reason, _ in why_not(await world.claim("second"))} == {"LimitReached"}
        await world.client.delete(CLAIMS, "first", "default")
        await world.settle()
        pending = ("ClaimPending", "to be allocated at once, on any suitable node")
        assert why_not(await world.claim("second")) == {pending}

    play(scenario)


def test_pods_and_immediate_claims_share_a_limit(play: Any) -> None:
    async def scenario(world: World) -> None:
        await limited(world, Disks(NODES))
        await world.add_pod("p", "disk")
        await world.settle()
        await world.add_claim("mine", "disk", mode="Immediate")
        await world.settle()
        assert await world.node_of("p")
        assert "mine" not in await allocated(world)
        await world.delete_pod("p")
        await world.settle()
        assert await allocated(world) == {"mine"}
        await world.add_pod("q", "disk")
        await world.settle()
        assert not await world.node_of("q")
        assert "holds 1 of 1 claims" in (await world.scheduling("q")).status.message

    play(scenario)


def test_nothing_is_allocated_before_the_controller_counts(play: Any) -> None:
    """It is away when the claims come."""

    async def scenario(world: World) -> None:
        await limited(world, Disks(NODES))
        await world.crash()
        for name in NODES:
            await world.add_claim(name, "disk", mode="Immediate")
        await world.settle()
        assert await allocated(world) == set()
        world.start_parley()
        await world.settle()
        assert len(await allocated(world)) == 1

    play(scenario)


@pytest.mark.parametrize("away", [False, True], ids=["", "while the controller is away"])
def test_claims_that_were_accepted_before_there_was_a_limit_are_judged_again(play: Any, away: bool) -> None:
    async def scenario(world: World) -> None:
        disks = Disks("")
        await prepare(world, disks)
        for name in NODES:
            await world.add_claim(name, "disk", mode="Immediate")
        await world.settle()
        if away:
            await world.crash()
        await world.client.patch(CLASSES, "disk", {"limits": [{"claims": 1}]})
        if away:
            world.start_parley()
        await world.settle()
        disks.nodes = NODES
        await world.taint("a", "changed", "PreferNoSchedule")
        await world.settle()
        assert len(await allocated(world)) == 1

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_claim_that_its_driver_is_allocating_counts_whatever_is_wrong_with_it_by_then(
    play: Any, restarted: bool
) -> None:
    """A tenant replaces its built-in claim, and creates another claim."""

    async def scenario(world: World) -> None:
        disks, most = Disks(NODES, seconds=60), 0
        await limited(world, disks)
        await world.add_claim("first", "disk", mode="Immediate")
        await asyncio.sleep(10)
        await world.client.patch(BUILTIN_CLAIMS, "first", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(BUILTIN_CLAIMS, "first", "default")
        await world.client.create(BUILTIN_CLAIMS, a_claim_of_others("first"), "default")
        await world.settle(5)
        if restarted:
            await restart(world, [DeviceDriver()])
        await world.add_claim("second", "disk", mode="Immediate")
        for _ in range(100):
            await asyncio.sleep(2)
            most = max(most, len(disks.held))
        assert most == 1
        assert await allocated(world) == {"first"}
        assert {reason for reason, _ in why_not(await world.claim("second"))} == {"LimitReached"}

    play(scenario)


def test_claims_that_wait_for_a_driver_are_judged_again_when_the_labels_of_their_namespace_change(
    play: Any,
) -> None:
    async def scenario(world: World) -> None:
        disks = Disks("")
        await prepare(world, disks)
        small = {"namespaceSelector": {"matchLabels": {"team": "small"}}, "claims": 1}
        await world.client.patch(CLASSES, "disk", {"limits": [small, {"claims": 2}]})
        await world.client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await world.settle()
        for name in ("first", "second"):
            await world.add_claim(name, "disk", mode="Immediate")
        await world.settle()
        assert why_not(await world.claim("second")).pop()[0] == "NothingViable"
        await world.client.patch(NAMESPACES, "default", {"metadata": {"labels": {"team": "small"}}})
        await world.settle()
        disks.nodes = NODES
        await world.add_node("d")
        await world.settle()
        assert len(await allocated(world)) == 1

    play(scenario)


def test_a_driver_begins_on_no_further_node_when_a_claim_is_over_the_limit_by_then(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(NODES, seconds=30)
        disks.flaky = {*NODES}
        await prepare(world, disks)
        none = {"namespaceSelector": {"matchLabels": {"team": "closed"}}, "claims": 0}
        await world.client.patch(CLASSES, "disk", {"limits": [none, {"claims": 1}]})
        await world.client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await world.settle()
        await world.add_claim("first", "disk", mode="Immediate")
        await asyncio.sleep(10)
        assert len(disks.tried) == 1
        await world.client.patch(NAMESPACES, "default", {"metadata": {"labels": {"team": "closed"}}})
        await asyncio.sleep(600)
        assert len(disks.tried) == 1

    play(scenario)
