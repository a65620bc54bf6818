"""Pods whose claims are served by standalone drivers, alone or together with others.

The drivers run by the real runner, over the same in-memory API server, and know nothing of the controller.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.support.conditions import ready
from tests.unit.scheduler.disks import Disks, disks_are_free, prepare

from parley.api.resources import CLAIMS, CLASSES, PODS
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation, Answer, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class CancellingDisks(Disks):
    """Awaits a task of its own that was cancelled, in the method that is named."""

    cancelling = ""

    async def consider(
        self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]
    ) -> Mapping[str, Answer]:
        if self.cancelling == "consider":
            raise asyncio.CancelledError
        return await super().consider(request, nodes)

    async def deallocate(self, uid: str) -> None:
        if self.cancelling == "deallocate":
            raise asyncio.CancelledError
        await super().deallocate(uid)


def test_a_pod_runs_where_the_driver_outside_has_what_it_asks_for(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["b"])
        await prepare(world, disks)
        await world.add_pod("p", "disk")
        await world.settle()
        assert await world.node_of("p") == "b"
        scheduling = await world.scheduling("p")
        assert (scheduling.spec.selected_node, scheduling.status.waiting_for) == ("b", "")
        (answer,) = scheduling.status.claims
        assert (answer.name, answer.driver_name, answer.viable_nodes) == ("gpu-0", disks.name, ("b",))
        (mirror,) = await world.mirrors()
        (claim,) = (await world.client.list(CLAIMS)).items
        assert claim.metadata.name == mirror.metadata.name
        await world.delete_pod("p")
        await world.settle()
        await disks_are_free(world, disks)

    play(scenario)


def test_two_drivers_agree_on_a_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "c"], seconds=3)
        await prepare(world, disks, nodes="ab")
        await world.add_node("c", devices=1)
        await world.add_pod("first", "one", "disk")
        await world.add_pod("second", "one", "disk")
        await world.add_pod("third", "one", "disk")
        await world.settle()
        assert {await world.node_of(name) for name in ("first", "second", "third")} == {"a", "c", ""}
        (waiting,) = [name for name in ("first", "second", "third") if not await world.node_of(name)]
        assert (await world.scheduling(waiting)).status.waiting_for == "NothingViable"
        await world.delete_pod(next(name for name in ("first", "second") if name != waiting))
        await world.settle()
        assert await world.node_of(waiting)
        for pod in (await world.client.list(PODS)).items:
            await world.delete_pod(pod.metadata.name)
        await world.settle()
        await disks_are_free(world, disks)

    play(scenario)


def test_a_node_where_the_driver_fails_is_left_and_what_others_allocated_there_given_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b", "c"], seconds=1)
        await prepare(world, disks)
        disks.flaky = {"a"}
        disks.broken = {"b"}
        for number in range(2):
            await world.add_pod(f"p{number}", "one", "disk")
        await asyncio.sleep(600)
        assert sorted([await world.node_of("p0"), await world.node_of("p1")]) == ["", "c"]
        assert disks.tried.count("b") <= 2, "a node that will never do is tried once a pod"
        assert 5 < disks.tried.count("a") < 20, "another try is made, but less and less often"
        disks.flaky = set()
        await asyncio.sleep(600)
        assert {await world.node_of("p0"), await world.node_of("p1")} == {"a", "c"}
        assert sorted((await world.devices()).values()) == [1, 1]

    play(scenario)


def test_a_driver_that_does_not_answer_is_named_and_nobody_else_waits_for_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_class()
        await world.add_template()
        await world.add_class("disk")
        await world.client.patch(CLASSES, "disk", {"driverName": "disks.example.com"})
        await world.add_template("disk", "disk")
        world.start_parley()
        await world.add_pod("silent", "disk", "one")
        await world.add_pod("other", "one")
        await world.settle(5)
        assert await world.node_of("other") == "a"
        assert (await world.scheduling("silent")).status.waiting_for == "WaitingForDrivers"
        await world.settle(40)
        status = (await world.scheduling("silent")).status
        assert (status.waiting_for, status.message) == (
            "DriverNotAnswering",
            "no answer within 30 s from standalone driver disks.example.com: "
            "start it, or correct driverName of class disk",
        )
        assert await world.events_on("silent") == [(status.waiting_for, status.message)]
        world.start_driver(Disks(["a"]))
        await world.settle()
        assert await world.node_of("silent") == "a"

    play(scenario)


def test_a_pod_that_goes_while_the_driver_allocates_leaves_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a"], seconds=1000)
        await prepare(world, disks)
        await world.add_pod("p", "disk", "one")
        await world.settle(20)
        assert list(disks.held.values()) == ["a"]
        status = (await world.scheduling("p")).status
        assert status.waiting_for == "Allocating"
        await world.delete_pod("p")
        await world.settle(20)
        await disks_are_free(world, disks)

    play(scenario)


def test_what_a_driver_cancels_by_itself_is_done_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = CancellingDisks("abc")
        await prepare(world, disks)
        disks.cancelling = "consider"
        await world.add_pod("p", "disk")
        await asyncio.sleep(100)
        assert not await world.node_of("p")
        disks.cancelling = ""
        await asyncio.sleep(400)
        assert await world.node_of("p")

        disks.cancelling = "deallocate"
        await world.delete_pod("p")
        await asyncio.sleep(100)
        assert disks.held
        disks.cancelling = ""
        await asyncio.sleep(400)
        await disks_are_free(world, disks)

    play(scenario)


def test_an_allocation_goes_on_over_restarts_of_controller_and_driver(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["b"], seconds=100)
        for node in "ab":
            await world.add_node(node)
        await world.add_class("disk")
        await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
        await world.add_template("disk", "disk")
        first, driver = world.start_parley(), world.start_driver(disks)
        await world.add_pod("p", "disk")
        await world.settle(20)
        for task in (first, driver):
            world.killed.add(task)
            task.cancel()
        await asyncio.wait([first, driver])
        again = Disks(["b"], seconds=100)
        again.nodes = []  # the answer would be another one now, but the node is selected
        world.start_parley()
        world.start_driver(again)
        await world.settle(200)
        assert again.tried == ["b"]
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_pod_gets_nothing_of_what_a_driver_answered_to_an_earlier_pod_of_its_name(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"])
        await prepare(world, disks)
        await world.add_pod("p", "disk")
        await world.settle()
        node = await world.node_of("p")
        await world.delete_pod("p")
        await asyncio.sleep(0.05)
        assert not (await world.client.list(PODS)).items
        disks.nodes = [name for name in "ab" if name != node]
        await world.add_pod("p", "disk")
        await world.settle()
        assert await world.node_of("p") == disks.nodes[0]

    play(scenario)


def test_named_claims_of_a_driver_outside_serve_one_pod_after_the_other(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a"])
        await prepare(world, disks)
        await world.add_claim("mine", "disk")
        await world.settle()
        for number in range(3):
            await world.add_pod(f"p{number}", claims=["mine"])
        await asyncio.sleep(60)  # the scheduler tries those that wait again and again
        waiting = [f"p{number}" for number in range(3)]
        while waiting:  # of two that are asked about at once, the one whose answer comes first is served
            (served,) = [name for name in waiting if await world.node_of(name)]
            waiting.remove(served)
            await world.delete_pod(served)
            await asyncio.sleep(60)
        assert disks.held == {}
        claim = await world.claim("mine")
        assert (claim.status.allocation, ready(claim)) == (None, "WaitForFirstConsumer")
        await world.client.delete(CLAIMS, "mine", "default")
        await world.settle()
        await disks_are_free(world, disks)

    play(scenario)


def test_an_asynchronous_driver_in_the_controller_is_asked_like_one_outside(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["b"], seconds=100)
        for node in "ab":
            await world.add_node(node, devices=2)
        await world.add_class("disk")
        await world.client.patch(CLASSES, "disk", {"driverName": disks.name})
        await world.add_template("disk", "disk")
        await world.add_class()
        await world.add_template()
        world.start_parley(drivers=[DeviceDriver(), disks])
        await world.add_pod("slow", "disk", "one")
        await world.add_pod("quick", "one")
        await world.settle(20)
        assert (await world.node_of("slow"), bool(await world.node_of("quick"))) == ("", True)
        await world.settle(200)
        assert await world.node_of("slow") == "b"

    play(scenario)


def test_what_a_finished_pod_held_by_a_named_claim_is_not_allocated_for_it_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Disks(["a"])
        await prepare(world, disks)
        await world.add_claim("mine", "disk")
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.finish_pod("p")
        await world.settle()
        assert (disks.held, disks.tried) == ({}, ["a"])
        assert (await world.scheduling("p")).spec.selected_node == "a"

    play(scenario)


def test_tokens_are_counted_outside_as_inside(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class("licence", nodePart="None", parameters={"pool": 3})
        await world.client.patch(CLASSES, "licence", {"driverName": TokensDriver.name})
        await world.add_template("licence", "licence")
        world.start_parley(drivers=[DeviceDriver()])
        world.start_driver(TokensDriver())
        for number in range(8):
            await world.add_pod(f"p{number}", "licence")
        await world.settle()
        bound = [f"p{n}" for n in range(8) if await world.node_of(f"p{n}")]
        assert len(bound) == 3
        for name in bound:
            await world.finish_pod(name)
        await world.settle()
        assert sum([bool(await world.node_of(f"p{n}")) for n in range(8)]) == 6

    play(scenario)


class Far(Disks):
    """Its one disk is with the provider, who says when it comes back."""

    def __init__(self) -> None:
        super().__init__([])
        self.back = asyncio.Event()

    async def follow(self, changed: Callable[[], None]) -> None:
        await self.back.wait()
        self.nodes = ["b"]
        changed()


def test_pods_go_on_when_a_provider_says_that_something_changed(play: Any) -> None:
    async def scenario(world: World) -> None:
        far = Far()
        await prepare(world, far)
        await world.add_pod("p", "disk")
        await world.settle()
        assert (await world.scheduling("p")).status.waiting_for == "NothingViable"
        far.back.set()
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


class Quiet(Disks):
    """Tells how far it is at its first allocation only."""

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        if self.tried:
            self.tried.append(node)
            (claim,) = request.claims
            self.held[claim.uid] = node
            return {claim.name: Allocation(data={"disk": node})}
        return await super().allocate(request, node)


def test_an_allocation_without_progress_leaves_the_conditions_of_the_one_before(play: Any) -> None:
    async def scenario(world: World) -> None:
        disks = Quiet(["a"], seconds=20)
        await prepare(world, disks)
        await world.add_claim("mine", "disk")
        for name in ("first", "second"):
            await world.add_pod(name, claims=["mine"])
            await world.settle()
            assert await world.node_of(name) == "a"
            conditions = {c.type: c.reason for c in (await world.claim("mine")).status.conditions}
            assert conditions == {
                **{type_: type_ for type_ in ("Accepted", "Allocated", "Ready")},
                "Allocating": "Done",
            }
            await world.delete_pod(name)
            await world.settle()

    play(scenario)


def test_who_waits_for_a_claim_does_not_end_its_allocation_for_another_pod(play: Any) -> None:
    """The first pod lacks a device, and hears of the claim whenever the driver writes it."""

    async def scenario(world: World) -> None:
        disks = Disks(["a", "b"], seconds=5)
        await prepare(world, disks, nodes="ab", devices=0)
        await world.add_claim("mine", "disk")
        await world.add_pod("first", "one", claims=["mine"])
        await world.settle()
        await world.add_pod("second", claims=["mine"])
        await asyncio.sleep(20)
        assert await world.node_of("second") in ("a", "b")
        assert len(disks.tried) == 1
        await world.delete_pod("second")
        await world.publish("b", ["gpu-0"])
        await world.settle()
        assert await world.node_of("first") == "b"

    play(scenario)
