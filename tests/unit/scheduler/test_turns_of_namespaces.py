"""Many objects of one namespace keep nobody else's waiting: namespaces take turns."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.test_standalone import Disks

from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIMS, PODS, TEMPLATES
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Client

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Awaitable[None]]], None]

WAITING = 500
"""Pods of one user that wait for one claim."""


class Slow(Client):
    """Each write of a PodScheduling or an event takes 20 ms."""

    async def request(self, call: Call) -> Any:
        if call.writes and call.resource.plural in ("podschedulings", "events"):
            await asyncio.sleep(0.02)
        return await super().request(call)


async def theirs(world: World, class_name: str = "disk") -> None:
    """A pod of another namespace, with a claim of the class."""
    spec = {"spec": {"resourceClassName": class_name}}
    kind = {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind}
    await world.client.create(TEMPLATES, {**kind, "metadata": {"name": "disk"}, "spec": spec}, "theirs")
    claims = [{"name": "disk", "resourceClaimTemplateName": "disk"}]
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "disk"}]}}
    pod = {"metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": [container]}}
    await world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, "theirs")


async def meddle(world: World) -> None:
    """The claim is recreated with another class, of which all that wait for it are told."""
    for turn in range(1000):
        await world.add_claim("c", f"class-{turn}")
        await asyncio.sleep(2)
        await world.client.delete(CLAIMS, "c", "default")
        await asyncio.sleep(0.1)


@pytest.mark.scheduling_paths("native")
def test_a_claim_that_comes_and_goes_keeps_no_drivers_question_of_others_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class("disk", driverName=Disks.name, nodePart="None")
        world.start_parley(Slow(world.server.client()))
        world.start_driver(Disks(["a"]))
        for number in range(WAITING):
            await world.add_pod(f"waits-{number}", claims=["c"], schedulerName="nobody")
        await asyncio.sleep(60)
        meddler = asyncio.create_task(meddle(world))
        await asyncio.sleep(20)
        await theirs(world)
        await asyncio.sleep(2)
        meddler.cancel()
        assert (await world.client.get(PODS, "p", "theirs")).spec.node_name == "a"

    play(scenario)


class SlowToFree(DeviceDriver):
    """To give back a device takes five seconds."""

    async def deallocate(self, uid: str) -> None:
        await asyncio.sleep(5)
        await super().deallocate(uid)


@pytest.mark.scheduling_paths("native")
def test_what_a_lost_node_frees_for_one_namespace_keeps_nobody_elses_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=81)
        await world.add_class()
        await world.add_template("one")
        world.start_parley(drivers=[SlowToFree()])
        for number in range(80):
            await world.add_pod(f"mine-{number}", "one")
        await world.settle()
        await theirs(world, "gpu")
        await world.settle()
        world.kubelets.stop("a")
        for number in range(80):
            await world.force_delete(f"mine-{number}")
        await world.client.delete(PODS, "p", "theirs", grace_period_seconds=0)
        await asyncio.sleep(60)
        assert len(world.ledger) == 81
        await world.taint("a", OUT_OF_SERVICE_TAINT, "NoExecute")
        await asyncio.sleep(20)
        left = [holding.namespace for holding in world.ledger]
        assert "theirs" not in left
        assert left.count("default") > 20

    play(scenario)
