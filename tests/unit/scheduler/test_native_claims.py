"""Who uses a claim on the native path, and what is restored after others clear or delete it."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.support.faults import FaultClient
from tests.unit.scheduler.two_nodes import NAMESPACE, two_nodes

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS
from parley.kube.client import Call, Conflict

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_a_named_claim_serves_one_pod_after_the_other(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk", count=2)
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        await world.add_pod("q", claims=["disk"])
        await world.settle()
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [user.name for user in claim.status.reserved_for] == ["p"]
        assert (await world.scheduling("q")).status.waiting_for == "ClaimInUse"
        assert (await world.scheduling("q")).status.message == (
            "claim default/disk is not shareable and pod default/p uses it: "
            "wait until that ends, or use a template"
        )
        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "b"
        await world.delete_pod("q")
        await world.settle()
        claim = await world.claim("disk")
        assert (ready(claim), claim.status.allocation) == ("WaitForFirstConsumer", None)
        await world.client.delete(CLAIMS, "disk", NAMESPACE)
        await world.settle()
        assert not (await world.client.list(CLAIMS)).items
        assert not await world.mirrors()

    play(scenario)


def test_a_shareable_claim_serves_several_pods_on_its_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("shared", shareable=True)
        await world.add_claim("disk", "shared", count=2)
        for name in ("p", "q", "r"):
            await world.add_pod(name, claims=["disk"])
        await world.settle()
        assert [await world.node_of(name) for name in ("p", "q", "r")] == ["b", "b", "b"]
        assert {user.name for user in (await world.claim("disk")).status.reserved_for} == {"p", "q", "r"}
        for name in ("p", "q", "r"):
            assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}
            await world.delete_pod(name)
            await world.settle()
        assert (await world.claim("disk")).status.allocation is None

    play(scenario)


def test_a_running_pods_claim_that_somebody_cleared_is_put_right(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk")
        await world.add_pod("p", "one", claims=["disk"])
        await world.settle()
        before = await world.devices()
        for mirror in await world.mirrors():
            body = {"status": {"allocation": None, "reservedFor": None}}
            await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, NAMESPACE, subresource="status")
        await world.settle()
        assert await world.devices() == before
        uid = (await world.pod("p")).metadata.uid
        for mirror in await world.mirrors():
            assert [user.uid for user in mirror.status.reserved_for] == [uid]

    play(scenario)


def test_a_running_pods_generated_claim_that_somebody_deleted_gets_the_same_devices(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        before = await world.devices()
        for mirror in await world.mirrors():
            await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, NAMESPACE)
        await world.add_pod("q", "one", "one")
        await world.settle()
        assert await world.node_of("q") == ""
        assert await world.devices() == before
        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "b"

    play(scenario)


def test_a_mirror_that_somebody_deletes_is_made_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk")
        await world.settle()
        first = await world.mirror("disk")
        await world.client.delete(BUILTIN_CLAIMS, "disk", NAMESPACE)
        await world.client.delete(BUILTIN_TEMPLATES, "one", NAMESPACE)
        await world.settle()
        second = await world.mirror("disk")
        assert first is not None
        assert second is not None
        assert first.metadata.uid != second.metadata.uid
        await world.add_pod("p", "one", claims=["disk"])
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # only its scheduler clears an allocation
def test_a_claim_that_could_not_be_taken_back_is_still_put_right_later(play: Any) -> None:
    failed = asyncio.Event()

    def fail_once(call: Call) -> None:
        clears = call.resource == BUILTIN_CLAIMS and "allocation" in (call.body or {}).get("status", {})
        if clears and call.body["status"]["allocation"] is None and not failed.is_set():
            failed.set()
            raise Conflict(409, "Conflict", "injected")

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_node("b")
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=fail_once))
        grump = {"metadata": {"name": "grump", "namespace": NAMESPACE, "labels": {"app": "grump"}}}
        await world.create(
            PODS, {**grump, "spec": {"nodeName": "a", "containers": [{"name": "m", "image": "none"}]}}
        )
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await world.add_pod("p", "one", "one", affinity=affinity)
        await failed.wait()
        await world.delete_pod("grump")
        await world.settle(400)
        assert await world.node_of("p") == "a"
        for mirror in await world.mirrors():
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, NAMESPACE, subresource="status")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1, ("a", "gpu-1"): 1}

    play(scenario)
