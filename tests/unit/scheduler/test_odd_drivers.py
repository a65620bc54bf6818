"""Drivers that raise what has no message, or answer what is no answer: their pods are told, all else goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from tests.unit.scheduler.failing_drivers import BOTH, Failing, with_tokens

from parley.api import reasons
from parley.api.builtin import NodeSelector, NodeSelectorTerm
from parley.control.objects.mirror import allocated
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation, Answer, Reserve

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class Mute(Failing):
    """Raises exceptions that fail to say what they are."""

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise Unspeakable


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("method", ["viable", "allocate", "deallocate", "restore"])
def test_an_exception_without_a_message_does_not_end_the_controller(play: Any, method: str) -> None:
    async def scenario(world: World) -> None:
        await with_tokens(world, driver := Mute())
        await world.add_pod("p", "seat")
        await world.settle()
        await world.crash()
        driver = Mute(method)
        world.start_parley(drivers=[DeviceDriver(), driver])
        await world.delete_pod("p")
        await world.add_pod("q", "seat")
        await world.add_pod("other", "one")
        await world.settle(quiet=1.0)
        assert await world.node_of("other")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("q")

    play(scenario)


def test_a_message_with_bytes_that_are_no_text_reaches_the_pods_user(play: Any) -> None:
    class Foreign(Failing):
        def _maybe(self, method: str) -> None:
            if method in self.failing:
                raise OSError("no file caf\udce9")

    async def scenario(world: World) -> None:
        await with_tokens(world, Foreign("viable"))
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        words = "driver tokens.parley.dev failed in viable: OSError: no file caf\\udce9"
        assert await world.events_on("p") == [(reasons.DRIVER_FAILED, words)]
        assert (await world.scheduling("p")).status.message == words

    play(scenario)


class Answering(TokensDriver):
    """Answers what it is told to, about every claim."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        return {claim.name: self.answer for claim in request.claims}


def test_pods_of_a_standalone_driver_are_told_of_an_answer_that_the_api_does_not_take(play: Any) -> None:
    """Nobody heard of it but the driver's log: the pod was told that the driver does not answer."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class("seats", driverName=Answering.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=1)
        world.start_parley(drivers=[DeviceDriver()])
        world.start_driver(Answering(Answer((), NodeSelector([NodeSelectorTerm()] * 300))))
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        (entry,) = (await world.scheduling("p")).status.claims
        assert entry.reason == (
            "driver tokens.parley.dev gave an answer that the API does not take: "
            "alternatives.nodeSelector.nodeSelectorTerms: Tuple should have at most 128 items after validation, "
            "not 300"
        )

    play(scenario)


@pytest.mark.parametrize("standalone", [False, True])
def test_a_driver_may_change_the_list_of_nodes_that_it_gets(play: Any, standalone: bool) -> None:
    class Clearing(TokensDriver):
        def viable(self, request: Any, nodes: Any) -> Mapping[str, Answer]:
            found = super().viable(request, [*nodes])
            nodes.clear()
            return found

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class("seats", driverName=Clearing.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=1)
        world.start_parley(drivers=[DeviceDriver(), *([] if standalone else [Clearing()])])
        if standalone:
            world.start_driver(Clearing())
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        assert await world.node_of("p")

    play(scenario)


@BOTH
@pytest.mark.parametrize("answer", [Answer((), None, None), Answer((), ["a"]), Answer((), (5,))])  # type: ignore[arg-type]
def test_pods_are_told_of_an_answer_of_a_wrong_type(play: Any, answer: Answer) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class("seats", driverName=Answering.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=1)
        world.start_parley(drivers=[Answering(answer)])
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        scheduling = await world.scheduling("p")
        assert scheduling.status.waiting_for == reasons.DRIVER_FAILED
        assert scheduling.status.message.startswith("driver tokens.parley.dev, claim 'gpu-0': ")

    play(scenario)


class Hasty(Failing):
    """Its methods are not async."""

    def allocate(self, request: Any, node: str) -> Any:
        return {claim.name: self._allocate(claim, node) for claim in request.claims}


def test_what_a_method_without_async_allocated_is_given_back(play: Any) -> None:
    async def scenario(world: World) -> None:
        await with_tokens(world, driver := Hasty())
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        (note,) = {note for reason, note in await world.events_on("p") if reason == reasons.ALLOCATION_FAILED}
        assert note.endswith("which cannot be awaited: allocate must be async def")
        assert not driver._held

    play(scenario)


class Sharing(TokensDriver):
    """Hands out its own dictionary, and writes into it again for the next claim."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, Any] = {}

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        for one in found.values():
            self.shared.update(one.data, last=request.pod.name or "none")
        return {name: replace(one, data=self.shared) for name, one in found.items()}


def test_a_record_is_what_was_allocated_whatever_its_driver_writes_into_it_later(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class(
            "seats", driverName=Sharing.name, parameters={"pool": 3}, nodePart="None", shareable=True
        )
        await world.add_template("seat", "seats", count=1)
        await world.add_claim("first", "seats", "Immediate", count=1)
        world.start_parley(drivers=[Sharing()])
        await world.settle(quiet=1.0)
        await world.add_pod("p", "seat", claims=["first"])
        await world.settle()
        assert await world.node_of("p") == "a"
        mirror = await world.mirror("first")
        assert mirror is not None
        found = allocated(mirror, Sharing.name)
        assert found is not None
        assert found.data["last"] == "none"

    play(scenario)


class Elsewhere(TokensDriver):
    """Names other nodes than the selected one."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        return {name: replace(one, available_on=("y", "z")) for name, one in found.items()}


@BOTH
def test_a_driver_in_the_controller_that_allocates_elsewhere_is_at_fault(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_class("seats", driverName=Elsewhere.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=1)
        world.start_parley(drivers=[Elsewhere()])
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        words = "available_on has not 'a', the node on which the claim was to be allocated: correct the driver"
        assert (await world.scheduling("p")).status.message.endswith(f"claim 'gpu-0': {words}")

    play(scenario)


def test_a_standalone_driver_is_told_what_it_has_that_counts_only_in_the_controller(play: Any) -> None:
    """Its record said that it reserves room, which nobody keeps for it."""

    class Reserving(TokensDriver):
        def reserves(self, claim: Any) -> Reserve | None:
            return Reserve({"cpu": "3"})

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class("seats", driverName=Reserving.name, parameters={"pool": 3, "scope": "Node"})
        world.start_parley(drivers=[DeviceDriver()])
        with capture_logs() as logs:
            world.start_driver(Reserving())
            await world.add_claim("c", "seats", mode="Immediate", count=1)
            await world.settle(quiet=1.0)
        allocation = (await world.claim("c")).status.allocation
        assert allocation is not None
        assert allocation.reserve is None
        (told,) = [line for line in logs if line["event"] == "not used outside of the controller"]
        assert told["unused"] == ["units", "reserves", "capacity"]

    play(scenario)
