"""Who said what about a pod."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.unit.explain.conftest import Play, explained, helps, said
from tests.unit.explain.waiting_pods import NOW, event, one_runs
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, CLASSES, PODS
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.sdk import Allocation, Request


class SlowSeats(TokensDriver):
    """Allocating takes `seconds`."""

    seconds = 0.0

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        allocations = await super().allocate(request, node)
        await asyncio.sleep(self.seconds)
        return allocations


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
