"""What drivers make of claims whose node takes no pods: wait, fail, or start over, by a deadline that outlives the
leader. What is kept is never given up while its node may come back, nor while a pod uses it."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.test_kept import run_pod
from tests.unit.scheduler.test_stranded import Change, come_back, condition, cordon, delete, uncordon, untaint

from parley.api import reasons
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIMS, NODES, PODS
from parley.drivers.device import DeviceDriver
from parley.kube.clock import rfc3339
from parley.sdk import Cause, ClaimRequest, Stranded

KEEP = 86_400
AFTER = 300.0
"""Seconds."""


class Settling(DeviceDriver):
    """Devices whose claims are settled in one way."""

    def __init__(self, way: Stranded) -> None:
        super().__init__()
        self.way = way
        self.causes: list[Cause] = []

    def stranded(self, claim: ClaimRequest[Any, Any], node: str, cause: Cause) -> Stranded:
        """As the test says."""
        self.causes.append(cause)
        return self.way


def lead(world: World, way: Stranded) -> Settling:
    driver = Settling(way)
    world.start_parley(drivers=[driver])
    return driver


async def begin(world: World, way: Stranded, **class_: Any) -> Settling:
    for node in ("a", "b"):
        await world.add_node(node, devices=1)
    await world.add_class(shareable=True, whenUnused={"keepSeconds": KEEP}, **class_)
    driver = lead(world, way)
    await world.add_claim("disk")
    await world.settle()
    return driver


async def out_of_service(world: World, node: str) -> None:
    await world.taint(node, OUT_OF_SERVICE_TAINT, "NoExecute")


async def failed(world: World) -> bool:
    found = condition(await world.claim("disk"), "Failed")
    return found is not None and found.status == "True"


async def is_kept_on(world: World, node: str) -> bool:
    claim = await world.claim("disk")
    said = condition(claim, "Allocated")
    return claim.status.allocation is not None and said is not None and said.message == f"allocated on node {node}"


@pytest.mark.scheduling_paths("native", "extender")
def test_pods_that_wait_for_a_claim_that_failed_fail_if_the_class_asks_for_it(play: Play) -> None:
    """Then whoever made them need not wait for a claim that nobody can use any more. Who runs with it runs on."""

    async def scenario(world: World) -> None:
        await begin(world, FAIL, onPermanentError="FailPod")
        node = await run_pod(world, "first")
        await world.add_pod("runs-on", claims=["disk"])
        await world.settle(10)
        await cordon(world, node)
        await world.add_pod("next", claims=["disk"])
        await asyncio.sleep(AFTER + 10)
        await world.add_pod("late", claims=["disk"])
        await asyncio.sleep(10)

        for name in ("next", "late"):
            status = (await world.client.get(PODS.untyped(), name, "default"))["status"]
            assert (status["phase"], status["reason"]) == ("Failed", reasons.CLAIM_FAILED)
            assert status["message"].startswith("claim default/disk has failed: ")
            assert (reasons.CLAIM_FAILED, status["message"]) in await world.events_on(name)
        assert (await world.pod("runs-on")).status.phase == "Running"

    play(scenario)


BACK: Mapping[Change, Change] = {out_of_service: untaint, delete: come_back, cordon: uncordon}
FAIL, RECREATE, WAIT = Stranded("Fail", AFTER), Stranded("Recreate", AFTER), Stranded()


def test_a_claim_fails_when_its_node_was_away_for_so_long_and_its_pods_are_told(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = await begin(world, FAIL)
        node = await run_pod(world, "first")
        await cordon(world, node)
        await world.add_pod("next", claims=["disk"])
        await asyncio.sleep(AFTER - 5)
        assert not await failed(world)
        assert (await world.scheduling("next")).status.waiting_for == reasons.CLAIM_STRANDED

        await asyncio.sleep(10)

        claim = await world.claim("disk")
        ended, ready = condition(claim, "Failed"), condition(claim, "Ready")
        assert ended is not None
        assert ready is not None
        assert ended.message == (
            f"node {node}, where it is allocated, has been cordoned for 300 s, after which claims of class gpu "
            "fail: delete it and create it again"
        )
        assert (ready.status, ready.reason) == ("False", reasons.CLAIM_FAILED)
        assert (reasons.CLAIM_FAILED, ended.message) in await world.events_on("disk")
        waits = (await world.scheduling("next")).status
        assert (waits.waiting_for, waits.message) == (
            reasons.CLAIM_FAILED,
            f"claim default/disk has failed: {ended.message}",
        )
        assert set(driver.causes) == {Cause.CORDONED}
        await uncordon(world, node)
        await world.settle()
        assert await failed(world), "for good"
        assert await world.node_of("next") == ""
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        await world.add_claim("disk")
        await world.settle()
        assert await world.node_of("next")

    play(scenario)


def test_a_node_that_is_back_in_time_fails_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, FAIL)
        node = await run_pod(world, "first")
        for _ in range(3):
            await cordon(world, node)
            await asyncio.sleep(AFTER - 10)
            await uncordon(world, node)
            await asyncio.sleep(10)
        await asyncio.sleep(2 * AFTER)
        assert not await failed(world)
        assert await run_pod(world, "second") == node

    play(scenario)


def test_who_uses_a_claim_that_fails_runs_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, FAIL)
        await world.add_pod("runs", claims=["disk"])
        await world.settle(5)
        node = await world.node_of("runs")
        await cordon(world, node)
        await asyncio.sleep(AFTER + 5)
        assert await failed(world)
        assert await is_kept_on(world, node)
        assert [user.name for user in (await world.claim("disk")).status.reserved_for] == ["runs"]

    play(scenario)


@pytest.mark.parametrize("away", [AFTER / 2, 2 * AFTER], ids=["before", "after"])
def test_a_new_leader_goes_on_with_the_deadline(play: Play, away: float) -> None:
    async def scenario(world: World) -> None:
        await begin(world, FAIL)
        await cordon(world, await run_pod(world, "first"))
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        await world.crash()
        await asyncio.sleep(away)
        lead(world, FAIL)
        await asyncio.sleep(1)
        assert await failed(world) is (away > AFTER)
        await asyncio.sleep(max(begun + AFTER + 5 - asyncio.get_running_loop().time(), 0))
        assert await failed(world)

    play(scenario)


def test_what_began_while_nobody_led_counts_by_the_nodes_own_taint(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, FAIL)
        node = await run_pod(world, "first")
        await world.crash()
        since = rfc3339(world.clock() - timedelta(seconds=AFTER - 60))
        cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": since}
        await world.client.patch(NODES, node, {"spec": {"unschedulable": True, "taints": [cordoned]}})
        lead(world, FAIL)
        await asyncio.sleep(50)
        assert not await failed(world)
        await asyncio.sleep(20)
        assert await failed(world)

    play(scenario)


@pytest.mark.parametrize("lose", [out_of_service, delete], ids=["out of service", "deleted"])
def test_what_is_lost_with_its_node_begins_anew_on_another_one(play: Play, lose: Change) -> None:
    async def scenario(world: World) -> None:
        await begin(world, RECREATE)
        node = await run_pod(world, "first")
        await cordon(world, node)
        await world.add_pod("next", claims=["disk"])
        await asyncio.sleep(2 * AFTER)
        assert await is_kept_on(world, node), "a cordoned node has the data"
        assert await world.node_of("next") == ""

        await lose(world, node)
        await asyncio.sleep(5)

        assert await world.node_of("next") == ({"a", "b"} - {node}).pop()
        assert await is_kept_on(world, await world.node_of("next"))
        events = [note for reason, note in await world.events_on("disk") if reason == reasons.CLAIM_RECREATED]
        what = "out of service" if lose is out_of_service else "deleted"
        assert events == [
            f"node {node} is {what}: what the claim had there is given up, and the claim is allocated again"
        ]

    play(scenario)


def test_not_before_its_time_and_not_if_the_node_is_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, RECREATE)
        node = await run_pod(world, "first")
        await out_of_service(world, node)
        await asyncio.sleep(AFTER - 10)
        assert await is_kept_on(world, node)
        await untaint(world, node)
        await asyncio.sleep(2 * AFTER)
        assert await is_kept_on(world, node)
        assert await run_pod(world, "second") == node

    play(scenario)


def test_what_a_pod_uses_is_not_given_up(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, RECREATE)
        await world.add_pod("runs", claims=["disk"])
        await world.settle(5)
        node = await world.node_of("runs")
        await out_of_service(world, node)
        await asyncio.sleep(2 * AFTER)
        assert await is_kept_on(world, node)
        await world.force_delete("runs")
        await world.settle(5)
        assert (await world.claim("disk")).status.allocation is None

    play(scenario)


@pytest.mark.parametrize("lose", [out_of_service, delete, cordon], ids=["out of service", "deleted", "cordoned"])
def test_by_default_claims_wait_for_their_node(play: Play, lose: Change) -> None:
    async def scenario(world: World) -> None:
        await begin(world, WAIT)
        node = await run_pod(world, "first")
        await lose(world, node)
        await world.add_pod("next", claims=["disk"])
        await asyncio.sleep(10 * AFTER)
        assert await is_kept_on(world, node)
        assert not await failed(world)
        await BACK[lose](world, node)
        await world.settle(5)
        assert await world.node_of("next") == node

    play(scenario)


def test_an_immediate_claim_begins_anew_without_a_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, RECREATE)
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        said = condition(await world.claim("now"), "Allocated")
        assert said is not None
        node = said.message[-1]
        await out_of_service(world, node)
        await asyncio.sleep(AFTER + 5)
        said = condition(await world.claim("now"), "Allocated")
        assert said is not None
        assert said.message == f"allocated on node {({'a', 'b'} - {node}).pop()}"

    play(scenario)


class Unsure(Settling):
    """Deallocates, and reports a failure while it is `failing`."""

    failing = True

    async def deallocate(self, uid: str) -> None:
        await super().deallocate(uid)
        if self.failing:
            raise RuntimeError("no answer")


def test_nothing_is_recorded_for_an_immediate_claim_that_its_driver_may_have_deallocated(play: Play) -> None:
    """Another claim may have the device by then."""

    async def scenario(world: World) -> None:
        driver = Unsure(RECREATE)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(drivers=[driver])
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await out_of_service(world, "a")
        await asyncio.sleep(AFTER + 60)
        assert (await world.claim("now")).status.allocation is None
        await untaint(world, "a")
        await world.add_pod("faster", "one")
        await asyncio.sleep(10)
        assert await world.node_of("faster") == "a"
        assert (await world.claim("now")).status.allocation is None
        driver.failing = False
        await world.settle(400)
        await world.delete_pod("faster")
        await world.settle(400)
        assert (await world.claim("now")).status.allocation is not None

    play(scenario)


@pytest.mark.parametrize("wrong", [Stranded("Fail", -1.0), Stranded("Fail", float("inf")), None], ids=str)
def test_a_driver_that_says_nothing_of_use_strands_nobody_else(play: Play, wrong: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, wrong)
        node = await run_pod(world, "first")
        await cordon(world, node)
        await world.add_pod("next", claims=["disk"])
        await asyncio.sleep(AFTER)
        assert not await failed(world)
        assert condition(await world.claim("disk"), "Stranded") is not None
        await uncordon(world, node)
        await world.settle(5)
        assert await world.node_of("next") == node

    play(scenario)
