"""Who said what about a pod, and who has said nothing."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.explain.conftest import Play, explained, helps, said, text_of
from tests.unit.scheduler.conftest import AWAY, SECOND_SCHEDULER, World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.models import ClaimScheduling
from parley.api.resources import BUILTIN_CLAIMS, CLASSES, EVENTS, NODES, PODS
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.explain.findings import written_at
from parley.explain.matrix import reasons_by_node
from parley.explain.times import ago, span
from parley.sdk import Allocation, Request

NOW = "2026-01-01T12:00:00Z"


class SlowSeats(TokensDriver):
    """Allocating takes `seconds`."""

    seconds = 0.0

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        allocations = await super().allocate(request, node)
        await asyncio.sleep(self.seconds)
        return allocations


async def one_runs(world: World) -> None:
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await world.settle()


async def event(world: World, pod: str, reason: str, note: str, **more: Any) -> None:
    uid = (await world.pod(pod)).metadata.uid
    regarding = {"kind": "Pod", "namespace": "default", "name": pod, "uid": uid}
    body = {"metadata": {"generateName": "e-"}, "reason": reason, "note": note, "type": "Warning", **more}
    await world.client.create(EVENTS, {**body, "regarding": regarding}, "default")


def test_the_node_plugin_and_the_kubelet_are_heard(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        failed = "Failed to prepare dynamic resources: claim default/x: does not exist"
        at = {"deprecatedLastTimestamp": "2026-01-01T00:00:10Z"}
        kubelet = {"deprecatedSource": {"component": "kubelet"}, **at}
        await event(world, "runs", "FailedPrepareDynamicResources", failed, **kubelet)
        await event(world, "runs", "BackOff", "restarting", reportingController="kubelet", **at)
        await event(world, "runs", "Pulled", "fine", type="Normal")
        unwell = [{"resourceID": "a/gpu-0", "health": "Unhealthy", "message": "fell off the bus"}]
        status = {"name": "main", "allocatedResourcesStatus": [{"name": "claim:gpu-0", "resources": unwell}]}
        await world.client.patch(
            PODS, "runs", {"status": {"containerStatuses": [status]}}, "default", subresource="status"
        )

        told = await explained(world, "runs")

        assert said(told, "node plugin") == ["a/gpu-0 of container main: fell off the bus", failed]
        assert said(told, "kubelet") == ["restarting"]

    play(scenario)


def test_events_of_an_earlier_pod_of_that_name_are_not_its_own(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await event(world, "runs", "BackOff", "restarting", reportingController="kubelet")
        await world.delete_pod("runs")
        await world.settle()
        await world.add_pod("runs", "one")
        await world.settle()

        assert (await explained(world, "runs")).findings == ()

    play(scenario)


@pytest.mark.parametrize("template", ["one", "missing"])
def test_that_a_claim_could_not_be_made_is_told_until_it_is(play: Play, template: str) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("wants", template)
        await world.settle()
        await event(
            world, "wants", "FailedResourceClaimCreation", "not found", reportingController="resource_claim"
        )

        told = await explained(world, "wants")

        assert said(told, "resource_claim") == ([] if template == "one" else ["not found"])

    play(scenario)


def test_a_claim_that_no_container_uses_is_a_finding_and_its_event_no_other(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        spec = {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
            "containers": [{"name": "main", "image": "none"}],
        }
        await world.create(PODS, {"metadata": {"name": "idle", "namespace": "default"}, "spec": spec})
        await world.settle()

        (finding,) = [one for one in (await explained(world, "idle")).findings if one.code == "ClaimUnused"]

        assert (finding.by, finding.at) == ("controller", "")
        assert finding.text.startswith("no container uses claim gpu, so no container gets what it holds")

    play(scenario)


def test_conditions_of_devices_are_their_drivers_words(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        (mirror,) = await world.mirrors()
        hot = {
            "type": "Cool",
            "status": "False",
            "reason": "Hot",
            "message": "93 degrees",
            "lastTransitionTime": NOW,
        }
        device = {"driver": "device.parley.dev", "pool": "a", "device": "gpu-0", "conditions": [hot]}
        await world.client.patch(
            BUILTIN_CLAIMS,
            mirror.metadata.name,
            {"status": {"devices": [device]}},
            "default",
            subresource="status",
        )

        told = await explained(world, "runs")

        assert said(told, "driver device.parley.dev") == ["device a/gpu-0: Cool=False: 93 degrees"]

    play(scenario)


def test_what_a_driver_outside_works_on_is_told(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        world.start_driver(ShelfDriver(Behaviour({"a": 1}, trouble=slow(300))))
        await world.add_node("a")
        await add_shelf_class(world)
        await world.add_pod("slow", "shelf")
        await world.settle(5)

        told = await explained(world, "slow")

        assert (told.code, told.nodes[0].verdict) == ("Allocating", "selected")

    play(scenario)


def test_so_is_what_it_was_not_asked_about_before_its_podscheduling_shows_that(play: Play) -> None:
    async def scenario(world: World) -> None:
        seats = SlowSeats()
        world.start_parley(drivers=[])
        world.start_driver(seats)
        await world.add_node("a")
        await world.add_class("seat", nodePart="None", parameters={"pool": 5, "scope": "Node"})
        await world.client.patch(CLASSES, "seat", {"driverName": seats.name})
        await world.add_template("seat", "seat")
        await world.settle(2)
        await world.add_pod("first", "seat")
        await world.settle(2)
        seats.seconds = 5.0
        await world.add_pod("later", "seat")
        await asyncio.sleep(2)
        assert (await world.scheduling("later")).status.waiting_for == ""

        told = await explained(world, "later")

        (claim,) = (await world.scheduling("later")).spec.claims
        assert (told.code, told.nodes[0].verdict) == ("Allocating", "selected")
        assert told.message == f"allocating on node a: {seats.name} (claim {claim.resource_claim_name})"

    play(scenario)


def test_a_failed_allocation_is_told_with_its_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        controller = world.start_parley()
        read_only = slow(20, then=RuntimeError("array is read-only"))
        world.start_driver(ShelfDriver(Behaviour({"a": 1}, trouble=read_only)))
        await world.add_node("a")
        await add_shelf_class(world)
        await world.add_pod("fails", "shelf")
        await asyncio.sleep(10)
        world.killed.add(controller)
        controller.cancel()
        await asyncio.sleep(30)

        words = said(await explained(world, "fails"), "driver shelf.example.com")

        assert words == ["could not allocate claim gpu-0 on node a: array is read-only"]

    play(scenario)


def test_when_the_controller_last_wrote() -> None:
    fields = [{"manager": "disk", "time": "2026-01-01T00:00:00Z"}, {"manager": "parley-controller", "time": NOW}]

    assert written_at({"metadata": {"managedFields": fields}}) == NOW
    assert written_at({"metadata": {}}) == "" == written_at(None)


def test_an_answers_words_by_node() -> None:
    reason = "a: no disk; array 1 is full; b: c: is it; d: none of ours"
    answer = ClaimScheduling(name="x", driver_name="d.example.com", round=1, reason=reason)

    assert reasons_by_node(answer, ["a", "b", "c"]) == {
        "a": "no disk; array 1 is full",
        "b": "c: is it; d: none of ours",
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (200_000, "2 d"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_ago() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert ago((now - timedelta(minutes=5)).isoformat(), NOW) == "5 min"
    assert ago("", NOW) == ""


@pytest.mark.parametrize("at", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00", "2026-01-01t00:00:00z"])
def test_a_time_that_python_does_not_know_is_none(at: str) -> None:
    """The API server takes the first in any event, and all of them in a claim's conditions."""
    assert ago(at, NOW) == ""


def test_a_pod_with_all_of_its_claims_waits_for_its_scheduler(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        world.start_parley()
        await world.add_pod("p", "one", schedulerName="nobody")
        await world.settle()
        told = await explained(world, "p")
        assert (told.code, told.message) == (
            "Binding",
            "everything is allocated, and scheduler nobody has not bound the pod yet",
        )
        assert not said(told, "controller")
        assert helps(told) == [
            "scheduler nobody has not said anything about the pod: check whether a scheduler of that name "
            "(spec.schedulerName) runs, and recreate the pod if the name is wrong"
        ]

    play(scenario)


def test_a_claim_that_is_being_created_is_pending_and_nobody_has_to_create_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one")
        await asyncio.sleep(60)
        told = await explained(world, "p")
        assert (told.code, told.message) == (
            "",
            "the claim for 'gpu-0' is being created from template default/one",
        )
        assert [claim.state for claim in told.claims] == ["pending"]
        assert "create the claim or template in the pod's namespace" not in helps(told)
        (missing,) = said(told, "controller")
        assert missing.startswith("has not reported on the pod for 60 s")

    play(scenario)


def test_a_claim_that_kubernetes_does_not_make_is_not_parleys_to_report_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.stop_claim_controller()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one", "one")
        await world.settle()
        told = await explained(world, "p")
        assert not said(told, "controller")
        assert said(told, "kube-controller-manager") == [
            "has not made the pod's claims gpu-0, gpu-1 for 60 s: see the pod's events for what keeps it from "
            "that, such as a quota, or check whether it runs"
        ]

    play(scenario)


def test_what_the_controller_said_before_is_not_why_the_pod_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class(whenUnused={"keepSeconds": 3600})
        await world.add_claim("c")
        await world.add_pod("has", claims=["c"])
        await world.settle()
        await world.add_pod("waits", claims=["c"])
        await world.settle()
        assert said(await explained(world, "waits"), "controller") == []

        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.delete_pod("has")
        await world.settle()
        told = await explained(world, "waits")
        assert told.code == "ClaimStranded"
        (earlier,) = said(told, "controller")
        assert earlier.startswith("(earlier) claim default/c is not shareable and pod default/has uses it")

    play(scenario)


def test_where_nothing_is_reported_a_pods_own_scheduler_may_be_away(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one", schedulerName=AWAY)
        await world.settle()
        (missing,) = said(await explained(world, "p"), "controller")
        assert missing.endswith(
            f"check whether it and scheduler {AWAY}, which may have to ask it first, run "
            "(kubectl -n parley-system get pods,leases)"
        )

    play(scenario)


def test_a_controller_that_has_written_an_event_has_reported(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_claim("c")
        await world.add_pod("q", claims=["c", "nope"])
        await world.settle()
        told = await explained(world, "q")
        assert told.message.startswith("claim default/nope does not exist")
        assert not said(told, "controller"), "the event has the same words"

    play(scenario)


def test_a_pod_that_somebody_put_on_a_node_says_what_it_lacks_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_claim("c")
        await world.settle()
        await world.add_pod("template", "one", nodeName="a")
        await world.add_pod("absent", "one", nodeName="b")
        await world.settle()
        told = await explained(world, "template")
        assert (told.state, told.code) == ("bound", "NothingViable")
        assert "node a: claim gpu-0: 0 of 1 device free, 1 wanted" in told.message
        assert "bound to a" in text_of(told).partition("\n")[0]
        assert text_of(told).partition("\n")[0].endswith(", pending: NothingViable")
        assert "node b: does not exist" in (await explained(world, "absent")).message

        await world.delete_pod("runs")
        await world.settle()
        told = await explained(world, "template")
        assert (told.state, told.code, told.message) == ("bound", "", "")

        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.add_pod("uses", claims=["c"])
        await world.settle()
        await world.add_pod("named", claims=["c"], nodeName="a")
        await world.settle()
        told = await explained(world, "named")
        assert (told.code, told.message.partition(":")[0]) == (
            "ClaimInUse",
            "claim default/c is not shareable and pod default/uses uses it",
        )

    play(scenario)


def test_a_pod_whose_scheduler_did_not_ask_is_not_the_controllers_to_report_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        requests = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100"}}}
        await world.add_pod("p", "one", containers=[requests], schedulerName=SECOND_SCHEDULER)
        await world.settle()
        told = await explained(world, "p")
        assert told.message == "scheduler parley found no node by its own filters, before it asked Parley"
        assert not said(told, "controller")
        assert "node a has what the claims request, but is not eligible: too little cpu left" in helps(told)

    play(scenario)


def test_what_the_former_driver_of_a_class_answered_is_no_answer(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("wants", "one")
        await world.settle()
        await world.client.patch(CLASSES, "gpu", {"driverName": ShelfDriver.name})
        await asyncio.sleep(40)

        told = await explained(world, "wants")

        assert [cell.why for row in told.nodes for cell in row.claims] == ["not answered"]
        assert helps(told) == ["start the driver, or correct driverName of the class"]
        (text,) = said(told, "driver shelf.example.com")
        assert text.startswith("has not answered about claim gpu-0")

    play(scenario)


def test_what_a_pod_waited_for_before_is_over_when_all_is_allocated(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("wants", "one", schedulerName="nobody")
        await world.settle()
        await world.delete_pod("runs")
        await asyncio.sleep(5)

        told = await explained(world, "wants")

        assert [one.state for one in told.claims] == ["allocated"]
        assert told.code == "Binding"

    play(scenario)


def test_what_drivers_outside_have_allocated_waits_for_the_binding_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a")
        await add_shelf_class(world)
        world.start_driver(ShelfDriver(Behaviour({"a": 1})))
        await world.add_pod("wants", "shelf", schedulerName="nobody")
        await asyncio.sleep(90)

        status = (await world.scheduling("wants")).status
        told = await explained(world, "wants")

        assert (status.waiting_for, status.message) == (told.code, told.message)
        assert told.code == "Binding"
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None

    play(scenario)


def test_claims_of_a_pod_that_has_ended_are_released_and_nothing_is_in_their_way(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_claim("disk")
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.add_pod("first", "one", claims=["disk"])
        await world.settle()
        await world.finish_pod("first")
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert await world.node_of("second")

        told = await explained(world, "first")

        assert [(one.state, one.message) for one in told.claims] == [("released", ""), ("released", "")]

    play(scenario)
