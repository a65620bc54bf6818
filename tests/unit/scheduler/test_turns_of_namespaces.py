"""Many objects of one namespace keep nobody else's waiting: namespaces take turns."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.disks import Disks

from parley.api.builtin import Pod
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIMS, PODS, TEMPLATES
from parley.control.claims import gathering
from parley.control.claims.podclaims import PodClaim
from parley.control.state import State
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Client
from parley.scheduler import reconciler
from parley.scheduler.precedence import YIELD_SECONDS
from parley.simulate.virtual_time import VirtualTimeLoop

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


async def theirs(
    world: World, class_name: str = "disk", namespace: str = "theirs", names: Sequence[str] = ("p",)
) -> None:
    """Pods of another namespace, each with a claim of the class."""
    spec = {"spec": {"resourceClassName": class_name}}
    kind = {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind}
    await world.client.create(TEMPLATES, {**kind, "metadata": {"name": "disk"}, "spec": spec}, namespace)
    claims = [{"name": "disk", "resourceClaimTemplateName": "disk"}]
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "disk"}]}}
    for name in names:
        pod = {"metadata": {"name": name}, "spec": {"resourceClaims": claims, "containers": [container]}}
        await world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, namespace)


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


def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a pod takes 20 ms, as where there are many nodes."""

    def gather(state: State, pod: Pod) -> Sequence[PodClaim]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(0.02)
        return gathering.gather(state, pod)

    monkeypatch.setattr(reconciler, "gather", gather)


@pytest.mark.scheduling_paths("native")
def test_pods_that_every_change_wakes_and_that_fit_nowhere_keep_nobody_elses_back(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each release of a token, of which there are many, wakes them, and the next one comes too early for all."""
    running = [f"runs-{number}" for number in range(100)]

    async def end_one_after_the_other(world: World) -> None:
        for name in running:
            await world.client.delete(PODS, name, "busy", grace_period_seconds=0)
            await asyncio.sleep(0.2)

    async def scenario(world: World) -> None:
        await world.add_node("a")
        pool = {"parameters": {"pool": 1000}}
        await world.add_class("seat", driverName=TokensDriver.name, nodePart="None", **pool)
        await world.add_template("one", "seat")
        world.start_parley(drivers=[TokensDriver()])
        for number in range(200):
            await world.add_pod(f"mine-{number}", "one", containers=requesting(cpu=f"{100 + number}"))
        await theirs(world, "seat", "busy", running)
        await world.settle()
        slow_looks(monkeypatch)
        churn = asyncio.create_task(end_one_after_the_other(world))
        await asyncio.sleep(2)
        await theirs(world, "seat")
        await asyncio.sleep(YIELD_SECONDS + 4)
        assert not churn.done()
        churn.cancel()
        assert (await world.client.get(PODS, "p", "theirs")).spec.node_name == "a"

    play(scenario)
