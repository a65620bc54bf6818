"""A pod whose volumes can be used on some nodes only gets its claims there, without trying others first."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import VOLUME_CLAIMS, VOLUMES
from parley.control.caches.wanted import SYNC_SECONDS
from parley.kube.client import Call, Client, Forbidden, RawEvent

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


async def volume(world: World, node: str) -> None:
    """The volume, which can be used on this node alone."""
    expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    body = {**_typed("PersistentVolume", "disk-1"), "spec": {"nodeAffinity": affinity}}
    await world.client.create(VOLUMES, body)


async def begin(world: World, client: Client | None = None) -> None:
    """Two nodes with a device each; volumes can be used on `b` alone."""
    await world.add_node("a", 1)
    await world.add_node("b", 1)
    await world.add_class()
    await world.add_template("one")
    world.start_parley(client)
    await world.settle(2)
    await volume(world, "b")


def _typed(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


async def claim(world: World, name: str, phase: str = "Bound", volume: str = "disk-1") -> None:
    body = {**_typed("PersistentVolumeClaim", name), "spec": {"volumeName": volume}, "status": {"phase": phase}}
    await world.client.create(VOLUME_CLAIMS, body, "default")


def volumes(of: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": of}}]}


async def tied_to_a_full_node(world: World) -> None:
    """Pod `p` waits: its volume is on node b, whose only device `other` holds."""
    await begin(world)
    await claim(world, "data")
    await world.add_pod("other", "one", nodeSelector={"kubernetes.io/hostname": "b"})
    await world.settle(2)
    await world.add_pod("p", "one", **volumes("data"))
    await world.settle()


@pytest.mark.parametrize(
    ("name", "spec"),
    [("data", volumes("data")), ("p-scratch", {"volumes": [{"name": "scratch", "ephemeral": {}}]})],
    ids=["claimed", "ephemeral"],
)
def test_a_pod_gets_its_claims_where_its_volume_is(play: Play, name: str, spec: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await claim(world, name)
        await world.add_pod("other", "one", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(2)
        await world.add_pod("p", "one", **spec)
        await world.settle()
        assert await world.node_of("p") == ""
        message = (await world.scheduling("p")).status.message
        assert f"node a: the volume of PersistentVolumeClaim {name} can't be used there" in message

        await world.delete_pod("other")
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


@pytest.mark.parametrize(
    ("phase", "volume"), [("Pending", "disk-1"), ("Bound", "gone")], ids=["not bound", "no such volume"]
)
def test_what_is_not_bound_ties_to_no_node(play: Play, phase: str, volume: str) -> None:
    """A user may name any volume in a claim, also one that is another's."""

    async def scenario(world: World) -> None:
        await begin(world)
        await claim(world, "data", phase, volume)
        await world.add_pod("other", "one", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(2)
        await world.add_pod("p", "one", **volumes("data"))
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_pod_that_waits_is_looked_at_again_when_its_claim_is_bound_elsewhere(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_node("c", 1)
        await claim(world, "data")
        await world.add_pod("other", "one", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(2)
        await world.add_pod("p", "one", **volumes("data"))
        await world.settle()
        await world.client.delete(VOLUME_CLAIMS, "data", "default")
        await claim(world, "data", volume="anywhere")
        await world.settle()
        assert await world.node_of("p") in ("a", "c")

    play(scenario)


def test_a_pod_that_waits_is_looked_at_again_when_its_volume_is_made_anew_elsewhere(play: Play) -> None:
    """The nodes of a volume can't be changed: who moves its data deletes it, and creates it with other nodes."""

    async def scenario(world: World) -> None:
        await tied_to_a_full_node(world)
        assert await world.node_of("p") == ""
        await world.client.delete(VOLUMES, "disk-1")
        await volume(world, "a")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_pods_with_other_volumes_do_not_stand_in_one_line(play: Play) -> None:
    """The first one can't go where a device comes free; the second one can."""

    async def scenario(world: World) -> None:
        await begin(world)
        await claim(world, "data")
        for name in ("a", "b"):
            await world.add_pod(f"on-{name}", "one", nodeSelector={"kubernetes.io/hostname": name})
        await world.settle(2)
        await world.add_pod("tied", "one", **volumes("data"))
        await world.settle(2)
        await world.add_pod("free", "one")
        await world.settle(2)
        await world.delete_pod("on-a")
        await world.settle()
        assert [await world.node_of(name) for name in ("tied", "free")] == ["", "a"]

    play(scenario)


class Refused(Client):
    """Of a role without the right to read volumes."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.asked = 0

    async def request(self, call: Call) -> bytes:
        if call.resource in (VOLUMES, VOLUME_CLAIMS):
            self.asked += 1
            raise Forbidden(403, "Forbidden", "persistentvolumes is forbidden")
        return await super().request(call)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            yield event


def test_without_the_right_to_read_volumes_the_scheduler_decides(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Refused(world.server.client())
        await begin(world, client)
        await world.add_pod("without", "one", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(2)
        assert client.asked == 0
        await world.add_pod("p", "one", **volumes("data"))
        await asyncio.sleep(SYNC_SECONDS / 2)
        assert await world.node_of("p") == ""
        await asyncio.sleep(SYNC_SECONDS)
        assert await world.node_of("p") == "a"
        assert world.controller is not None
        assert VOLUMES not in [cache.resource for cache in world.controller.caches]  # which it is unready without

    play(scenario)
