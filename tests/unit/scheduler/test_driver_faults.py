"""What a driver raises concerns the claims and pods that it was called for: they are told, all else goes on."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient

from parley.api import reasons
from parley.api.builtin import ResourceSlice
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, CLASSES, PODS
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Invalid
from parley.negotiation.answers import Answer
from parley.sdk import Allocation, Held
from parley.simulate.kubelet import UNPREPARE_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

NAMESPACE = "default"
BOTH = pytest.mark.scheduling_paths("native", "extender")
AT_ONCE = ("viable", "score", "units")


class Failing(TokensDriver):
    """A driver that raises in some of its methods for as long as they are named here."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.failing = set(methods)

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise KeyError(method)

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self._maybe("viable")
        return super().viable(request, nodes)

    def score(self, request: Any, nodes: Sequence[str]) -> Mapping[str, float]:
        self._maybe("score")
        return {}

    def units(self, claim: Any) -> int:
        self._maybe("units")
        return super().units(claim)

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        self._maybe("allocate")
        return await super().allocate(request, node)

    async def deallocate(self, uid: str) -> None:
        self._maybe("deallocate")
        await super().deallocate(uid)

    def restore(self, held: Held) -> None:
        self._maybe("restore")
        super().restore(held)


class Unsure(Failing):
    """Gives back what a claim holds, and may not get to say so."""

    async def deallocate(self, uid: str) -> None:
        await TokensDriver.deallocate(self, uid)
        self._maybe("deallocate")


class Cancelling(Failing):
    """Awaits a task of its own that was cancelled."""

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise asyncio.CancelledError


class Hanging(Failing):
    """What is behind it does not answer."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await self._answered("allocate")
        return await super().allocate(request, node)

    async def deallocate(self, uid: str) -> None:
        await self._answered("deallocate")
        await super().deallocate(uid)

    async def _answered(self, method: str) -> None:
        if method in self.failing:
            await asyncio.sleep(math.inf)

    def _maybe(self, method: str) -> None:
        """It raises nothing."""


class Blind(DeviceDriver):
    """Does not understand a node's slice."""

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool | Collection[str]:
        if new is not None and new.spec.node_name == "strange":
            raise KeyError("strange")
        return super().observe(old, new)


async def with_tokens(world: World, driver: Failing) -> None:
    """Two nodes, a class of tokens with that driver, and devices beside."""
    for node in ("a", "b"):
        await world.add_node(node, devices=2)
    await world.add_class()
    await world.add_template()
    await world.add_class("seats", driverName=driver.name, parameters={"pool": 3}, limits=[{"units": 100}])
    await world.add_template("seat", "seats", count=1)
    world.start_parley(drivers=[DeviceDriver(), driver])


@BOTH
@pytest.mark.parametrize("method", AT_ONCE)
def test_pods_of_a_driver_that_fails_are_told_and_go_on_when_it_works_again(
    play: Any, scheduling_path: str, method: str
) -> None:
    async def scenario(world: World) -> None:
        driver = Failing(method)
        await with_tokens(world, driver)
        await world.add_pod("p", "seat")
        await world.add_pod("q", "one")
        await world.settle(quiet=1.0)

        assert await world.node_of("q")
        if scheduling_path == "extender" and method == "score":
            return  # asked once the filter is answered: any of its nodes will do
        scheduling = await world.scheduling("p")
        words = f"driver tokens.parley.dev failed in {method}: KeyError: '{method}'"
        assert (scheduling.status.waiting_for, scheduling.status.message) == (reasons.DRIVER_FAILED, words)
        assert await world.events_on("p") == [(reasons.DRIVER_FAILED, words)]
        assert not await world.node_of("p")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("p")

    play(scenario)


@BOTH
@pytest.mark.parametrize("methods", [("allocate",), ("deallocate",), ("allocate", "deallocate")], ids=str)
def test_a_driver_that_hangs_keeps_nobody_elses_pods_waiting(play: Any, methods: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        if "allocate" in methods:
            driver.failing.update(methods)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await asyncio.sleep(20)
        driver.failing.update(methods)
        for i in range(40):
            await world.delete_pod(f"p{i}")
        for i in range(40):
            await world.add_pod(f"q{i}", "seat")
        for number in range(8):
            await world.add_pod(f"other-{number}", "one")
            await asyncio.sleep(2)
            assert await world.node_of(f"other-{number}")
            await world.delete_pod(f"other-{number}")
            await asyncio.sleep(29)

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert all([await world.node_of(f"q{i}") for i in range(40)])

    play(scenario)


@pytest.mark.parametrize("method", ["allocate", "deallocate"])
def test_nor_do_its_immediate_claims_keep_other_claims_waiting(play: Any, method: str) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        if method == "allocate":
            driver.failing.add(method)
        for i in range(40):
            await world.add_claim(f"c{i}", "seats", "Immediate", count=1)
        await asyncio.sleep(20)
        driver.failing.add(method)
        for i in range(40):
            await world.client.delete(CLAIMS, f"c{i}", "default")
        for minute in range(4):
            await world.add_claim(f"mine-{minute}")
            await world.add_pod(f"other-{minute}", claims=[f"mine-{minute}"])
            await asyncio.sleep(2)
            assert await world.node_of(f"other-{minute}")
            await asyncio.sleep(58)

    play(scenario)


def test_nor_do_its_claims_keep_those_waiting_whose_nodes_have_answered(play: Any) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        await world.add_pod("first", "one")
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await world.settle()
        driver.failing.add("deallocate")
        for i in range(40):
            await world.delete_pod(f"p{i}")
        await asyncio.sleep(600)
        await world.force_delete("first")
        await asyncio.sleep(UNPREPARE_SECONDS + 2)
        assert not (await world.client.list(CLAIM_RELEASES)).items
        assert all(holding.class_name == "seats" for holding in world.ledger)

    play(scenario)


@BOTH
def test_what_other_drivers_allocated_for_pods_of_one_that_hangs_is_free_at_once(play: Any) -> None:
    """It was released after what the first driver had allocated: for each pod that takes half a minute."""

    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        await world.add_node("c", devices=40)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat", "one")
        await world.settle()
        driver.failing.add("deallocate")
        for i in range(40):
            await world.delete_pod(f"p{i}")
        for i in range(40):
            await world.add_pod(f"other-{i}", "one")
        await asyncio.sleep(30)
        assert all([await world.node_of(f"other-{i}") for i in range(40)])

    play(scenario)


@BOTH
@pytest.mark.parametrize("method", ["allocate", "deallocate", "viable", "units"])
def test_a_driver_that_cancels_its_own_work_ends_no_worker(play: Any, method: str) -> None:
    async def scenario(world: World) -> None:
        driver = Cancelling(method)
        await with_tokens(world, driver)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await world.settle()
        for i in range(40):
            await world.client.delete(PODS, f"p{i}", NAMESPACE)
        await world.settle(quiet=1.0)
        await world.add_pod("other", "one")
        await world.settle(quiet=1.0)
        assert await world.node_of("other")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        await world.add_template("all", "seats", count=3)
        await world.add_pod("r", "all")
        await world.settle()
        assert await world.node_of("r")

    play(scenario)


@BOTH
def test_a_driver_that_fails_to_give_back_is_asked_again_and_hands_nothing_out_twice(
    play: Any, scheduling_path: str
) -> None:
    async def scenario(world: World) -> None:
        driver = Failing()
        await with_tokens(world, driver)
        await world.add_template("all", "seats", count=3)
        await world.add_pod("p", "all")
        await world.settle()
        driver.failing.add("deallocate")
        await world.delete_pod("p")
        await world.add_pod("q", "all")
        await world.add_pod("r", "one")
        await world.settle(quiet=1.0)
        assert not await world.node_of("q")
        assert await world.node_of("r")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("q")

    play(scenario)


@BOTH
def test_nobody_comes_to_use_what_a_driver_may_have_given_back(play: Any, scheduling_path: str) -> None:
    async def scenario(world: World) -> None:
        driver = Unsure()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"shareable": True})
        await world.add_claim("team", "seats", count=3)
        await world.add_pod("p", claims=["team"])
        await world.settle()
        driver.failing.add("deallocate")
        await world.delete_pod("p")
        await asyncio.sleep(2)
        await world.add_pod("q", claims=["team"])
        await world.settle(quiet=1.0)
        assert not await world.node_of("q")
        await world.add_pod("r", "seat")
        await world.settle(quiet=1.0)
        assert await world.node_of("r")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert not await world.node_of("q")
        await world.delete_pod("r")
        await world.settle(quiet=400.0)
        assert await world.node_of("q")

    play(scenario)


@BOTH
def test_a_pod_whose_own_allocation_the_driver_fails_to_give_back_is_told_and_gets_another(
    play: Any, scheduling_path: str
) -> None:
    async def scenario(world: World) -> None:
        driver, refused = Unsure("deallocate"), asyncio.Event()

        def refuse(call: Call) -> None:
            recording = call.resource is BUILTIN_CLAIMS and call.verb == "patch" and "status" in (call.body or {})
            if recording and call.body and call.body["status"].get("allocation") and not refused.is_set():
                refused.set()
                raise Invalid(422, "Invalid", "injected")

        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class("seats", driverName=driver.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=3)
        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[driver])
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        (mirror,) = await world.mirrors()
        assert (await world.scheduling("p")).status.message == (
            f"claim default/{mirror.metadata.name} is not free yet: "
            "driver tokens.parley.dev failed in deallocate and is asked again"
        )
        assert not await world.node_of("p")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("p")

    play(scenario)


def test_immediate_claims_of_a_driver_that_fails_are_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        driver = Failing("viable")
        await with_tokens(world, driver)
        await world.add_claim("c", "seats", mode="Immediate", count=1)
        await world.settle(quiet=1.0)

        said = {c.type: (c.reason, c.message) for c in (await world.claim("c")).status.conditions}
        words = "driver tokens.parley.dev failed in viable: KeyError: 'viable'"
        assert said[reasons.ALLOCATED] == (reasons.DRIVER_FAILED, words)

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert (await world.claim("c")).status.allocation is not None

    play(scenario)


def test_what_could_not_be_taken_over_is_not_handed_out_and_the_rest_is(play: Any) -> None:
    async def scenario(world: World) -> None:
        await with_tokens(world, Failing())
        await world.add_class("local", driverName=Failing.name, parameters={"pool": 3, "scope": "Node"})
        await world.add_template("local", "local", count=1)
        await world.add_pod("p", "local", nodeName="a")
        await world.add_pod("other", "one")
        await world.settle()
        await world.crash()

        world.start_parley(drivers=[DeviceDriver(), Failing("restore")])
        await world.add_pod("q", "local", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.add_pod("r", "local")
        await world.settle(quiet=1.0)

        (mirror,) = (m for m in await world.mirrors() if m.metadata.name.startswith("p-"))
        words = (
            f"driver tokens.parley.dev could not restore what claim default/{mirror.metadata.name} holds "
            "(KeyError: 'restore'), and leaves it alone until that claim is released"
        )
        assert await world.events_on(mirror.metadata.name) == [(reasons.DRIVER_FAILED, words)]
        assert words in (await world.scheduling("q")).status.message
        assert await world.node_of("r") == "b"

        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "a"

    play(scenario)


def test_a_false_record_does_not_end_the_controller(play: Any) -> None:
    async def scenario(world: World) -> None:
        await with_tokens(world, Failing())
        await world.add_claim("false", "seats", count=1)
        await world.settle()
        await world.crash()
        handle = {"driverName": Failing.name, "data": {"x": 1}}
        record = {"driverName": Failing.name, "allocation": {"handles": [handle]}}
        await world.client.patch(CLAIMS, "false", {"status": record}, NAMESPACE, subresource="status")

        world.start_parley(drivers=[DeviceDriver(), TokensDriver()])
        await world.add_pod("p", "one")
        await world.settle(quiet=1.0)

        assert await world.node_of("p")

    play(scenario)


@pytest.mark.parametrize(
    "data", [{"devices": 5}, {"devices": [{"x": 1}, 7]}, {"devices": {"pool": "a"}}, {"pool": "seats"}], ids=str
)
def test_a_false_handle_of_a_generated_claim_does_not_end_the_controller(play: Any, data: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        await with_tokens(world, Failing())
        await world.add_pod("p", "seat")
        await world.settle()
        await world.crash()
        (mirror,) = await world.mirrors()
        whole = await world.client.get(BUILTIN_CLAIMS.untyped(), mirror.metadata.name, NAMESPACE)
        allocation = whole["status"]["allocation"]
        allocation["devices"]["config"][0]["opaque"]["parameters"] = data
        await world.client.patch(
            BUILTIN_CLAIMS,
            mirror.metadata.name,
            {"status": {"allocation": None, "reservedFor": None}},
            NAMESPACE,
            subresource="status",
        )
        false = {"status": {"allocation": allocation, "reservedFor": whole["status"]["reservedFor"]}}
        await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, false, NAMESPACE, subresource="status")

        world.start_parley(drivers=[DeviceDriver(), TokensDriver()])
        await world.add_pod("q", "one")
        await world.settle(quiet=1.0)

        assert await world.node_of("q")

    play(scenario)


def test_a_driver_that_does_not_understand_what_it_watches_goes_on_with_the_rest(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("strange", devices=1)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(drivers=[Blind()])
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.publish("strange", ["gpu-0", "gpu-1"])
        await world.settle()

    play(scenario)


class Nesting(TokensDriver):
    """Records a tree of 100 levels with what it allocates."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        tree: list[Any] = []
        for _ in range(100):
            tree = [tree]
        return {name: replace(one, data={**one.data, "tree": tree}) for name, one in found.items()}


def test_what_a_restarted_controller_could_not_read_is_not_allocated(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class("seats", driverName=Nesting.name, parameters={"pool": 1})
        await world.add_template("seat", "seats", count=1)
        world.start_parley(drivers=[Nesting()])
        await world.add_pod("p", "seat")
        await world.settle()
        await world.crash()
        world.start_parley(drivers=[Nesting()])
        await world.add_pod("q", "seat")
        await world.settle()

        assert [await world.node_of("p"), await world.node_of("q")] == ["", ""], "one seat, two pods"
        (event,) = {note for reason, note in await world.events_on("p") if reason == reasons.ALLOCATION_FAILED}
        assert event.endswith("claim 'gpu-0': data nests deeper than 64 levels: make it flatter")

    play(scenario)
