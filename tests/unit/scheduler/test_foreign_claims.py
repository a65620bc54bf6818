"""Devices that ordinary claims have: pods that wait for them get them as soon as they are given back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import AWAY, NAMESPACE, World
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.test_unheard_bindings import LateClient

from parley.api.names import API_VERSION
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.drivers.device import DeviceDriver
from parley.sdk import Held

Play = Callable[[Callable[[World], Any]], None]


async def allocate(world: World, *nodes: str) -> None:
    """The structured allocator of the scheduler gives the claim one device of each node."""
    results = [{"request": "it", "driver": DeviceDriver.name, "pool": node, "device": "gpu-0"} for node in nodes]
    status = {"status": {"allocation": {"devices": {"results": results}} if nodes else None}}
    await world.client.patch(BUILTIN_CLAIMS, "ordinary", status, NAMESPACE, subresource="status")


class Careful(DeviceDriver):
    """Takes what it is told of a claim that it knows for a repetition."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def restore(self, held: Held) -> None:
        if held.uid not in self.known:
            self.known.add(held.uid)
            super().restore(held)

    def forget(self, uid: str) -> None:
        self.known.discard(uid)
        super().forget(uid)


@pytest.mark.parametrize("driver", [DeviceDriver, Careful])
@pytest.mark.parametrize("listed", [False, True], ids=["watched", "between two lists"])
def test_a_claim_that_is_allocated_elsewhere_leaves_its_device_to_who_waits_for_it(
    play: Play, listed: bool, driver: Callable[[], DeviceDriver]
) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, devices=1)
        await world.add_class()
        await world.add_template()
        requests = [{"name": "it", "exactly": {"deviceClassName": "example"}}]
        await world.create(
            BUILTIN_CLAIMS,
            {
                "metadata": {"name": "ordinary", "namespace": NAMESPACE},
                "spec": {"devices": {"requests": requests}},
            },
        )
        await allocate(world, "a")
        client = LateClient(world.server.client(), 0.0, {})
        world.start_parley(client, drivers=[driver()])
        await world.add_pod("p", "one", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        assert await world.node_of("p") == ""
        if listed:
            client.pause()
        await allocate(world)
        await allocate(world, "b")
        await asyncio.sleep(1)
        client.relist()
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_has_the_name_of_a_shareable_claim_does_not_stop_the_controller(
    play: Play, restarted: bool
) -> None:
    """A standalone driver allocates an immediate claim, whoever has the name among the built-in ones."""

    async def scenario(world: World) -> None:
        await prepare(world, Disks("abc"))
        await world.client.patch(CLASSES, "disk", {"shareable": True})
        await world.create(
            BUILTIN_CLAIMS, {"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": {"devices": {}}}
        )
        await world.add_claim("mine", "disk", mode="Immediate")
        await world.settle()
        assert (await world.claim("mine")).status.allocation is not None
        if restarted:
            await world.crash()
            world.start_parley()
        await world.client.delete(BUILTIN_CLAIMS, "mine", NAMESPACE)
        for pod in ("first", "second"):
            await world.add_pod(pod, claims=["mine"])
        await world.settle()
        assert await world.node_of("first") == await world.node_of("second") != ""

    play(scenario)


async def add_ordinary(world: World, name: str, *, owner: str = "") -> None:
    """A user's own built-in claim. It may name a Parley claim, by its UID, as its owner."""
    owners = [{"apiVersion": API_VERSION, "kind": "ResourceClaim", "name": name, "uid": owner}] if owner else []
    requests = [{"name": "it", "exactly": {"deviceClassName": "example"}}]
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": owners}
    await world.create(BUILTIN_CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": requests}}})


async def allocate_ordinary(world: World, name: str, *users: str) -> None:
    """A device of another driver, for these pods."""
    result = {"request": "it", "driver": "other.example.com", "pool": "a", "device": "x"}
    pods = [await world.pod(user) for user in users]
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [consumer(reference(pod)) for pod in pods],
    }
    await world.client.patch(BUILTIN_CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")


@pytest.mark.parametrize("owned", [False, True], ids=["", "owned"])
@pytest.mark.parametrize("shareable", [False, True], ids=["exclusive", "shareable"])
def test_the_users_of_one_that_has_a_claims_name_are_not_the_claims(
    play: Play, shareable: bool, owned: bool
) -> None:
    """An administrator forced the mirror of the claim in use away, and somebody took the name."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(shareable=shareable)
        await world.add_template()
        world.start_parley()
        await world.add_claim("mine")
        await world.add_pod("first", claims=["mine"])
        await world.settle()
        await world.crash()
        await world.client.patch(BUILTIN_CLAIMS, "mine", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.client.delete(BUILTIN_CLAIMS, "mine", NAMESPACE)
        await add_ordinary(world, "mine", owner=(await world.claim("mine")).metadata.uid if owned else "")
        await asyncio.sleep(2)
        await world.add_pod("second", claims=["mine"], nodeName="a")
        await allocate_ordinary(world, "mine", "second")
        world.start_parley()
        await world.add_pod("new", "one")
        await world.settle()
        assert await world.node_of("new") == ""
        await world.delete_pod("first")
        await world.settle()
        assert await world.node_of("new") == "a"
        mirror = await world.mirror("mine")
        assert mirror is not None
        assert [user.name for user in mirror.status.reserved_for] == ["second"]

    play(scenario)


def test_one_that_names_a_claim_as_its_owner_is_not_cleared_with_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, Disks("a"), nodes="a")
        await add_ordinary(world, "mine")
        await world.add_claim("mine", "disk", mode="Immediate")
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "mine", NAMESPACE)
        await add_ordinary(world, "mine", owner=(await world.claim("mine")).metadata.uid)
        await allocate_ordinary(world, "mine")
        kept = {"metadata": {"finalizers": ["example.com/slow"]}}  # else the garbage collector deletes both
        await world.client.patch(CLAIMS, "mine", kept, NAMESPACE)
        await world.client.delete(CLAIMS, "mine", NAMESPACE)
        await world.settle()
        assert len(world.ledger) == 0
        mirror = await world.mirror("mine")
        assert mirror is not None
        assert mirror.status.allocation is not None

    play(scenario)


def test_a_pod_of_the_second_scheduler_that_uses_one_evicts_nobody(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        world.start_parley()
        await world.settle()
        await world.create(
            BUILTIN_CLAIMS, {"metadata": {"name": "ordinary", "namespace": NAMESPACE}, "spec": {"devices": {}}}
        )
        await world.add_pod("p", claims=["ordinary"], schedulerName=AWAY)
        await world.settle()
        pod = (await world.question("p"))["Pod"]
        question = {"Pod": pod, "NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}}
        assert (await world.ask("preempt", question))["NodeNameToMetaVictims"] == {}

    play(scenario)
