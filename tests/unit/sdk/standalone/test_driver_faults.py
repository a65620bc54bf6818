"""A standalone driver that raises: its answer says so, and the program goes on."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, Array, ArrayDriver, ShelfDriver, World

from parley.api.builtin import Node
from parley.api.models import Alternatives
from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.kube.client import TooLarge
from parley.sdk import Allocation, Answer, Held

Play = Callable[[Callable[[World], Any]], None]


class Shelf(ShelfDriver):
    """Raises in some of its methods for as long as they are named here, for node "b" or any."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.failing = set(methods)

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise KeyError(method)

    def observe(self, old: Node | None, new: Node | None) -> bool:
        if new is not None and new.metadata.name == "strange":
            self._maybe("observe")
        return super().observe(old, new)

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self._maybe("viable")
        return super().viable(request, nodes)

    def restore(self, held: Held) -> None:
        self._maybe("restore")
        super().restore(held)


class Asked(ArrayDriver):
    """The same for one that asks an array."""

    def __init__(self, array: Array) -> None:
        super().__init__(array)
        self.failing = {"consider"}

    async def consider(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        if "consider" in self.failing:
            raise KeyError("consider")
        return await super().consider(request, nodes)


@pytest.mark.parametrize("method", ["viable", "consider"])
def test_a_failure_is_the_answer_until_the_driver_works_again(play: Play, array: Array, method: str) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("disk")
        driver = Shelf("viable") if method == "viable" else Asked(array)
        world.start(driver)
        await world.ask("pod", "disk", nodes=["a", "b"])
        await world.settle(quiet=1.0)

        entry = await world.answer("pod")
        assert (entry.round, entry.viable_nodes) == (1, ())
        assert entry.reason == f"driver {DRIVER} failed in {method}: KeyError: '{method}'"

        driver.failing.clear()
        await world.settle(quiet=200.0)
        assert (await world.answer("pod")).viable_nodes == ("a", "b")

    play(scenario)


class Fussy(ShelfDriver):
    """Raises when it is asked about the claim of one UID."""

    refused = ""

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        if request.claims[0].uid == self.refused:
            raise KeyError("viable")
        return super().viable(request, nodes)


def test_an_immediate_claim_says_that_its_driver_failed_and_others_go_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_class()
        driver = Fussy()
        world.start(driver)
        for claim in ("first", "second"):
            await world.add_claim(claim, mode="Immediate")
            await world.settle()
        driver.refused = (await world.claim("first")).metadata.uid
        await world.set_disks("a", 2)
        await asyncio.sleep(300)

        assert await world.node_of("second") == "a"
        assert await world.node_of("first") == ""
        (shown,) = [one for one in (await world.claim("first")).status.conditions if one.type == "Allocated"]
        assert shown.reason == "DriverFailed"
        assert shown.message == f"driver {DRIVER} failed in viable: KeyError: 'viable'"

        driver.refused = ""
        await asyncio.sleep(100)
        assert await world.node_of("first") == "a"

    play(scenario)


class Rack(Shelf):
    """What it allocates can be used on node b, too."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        return {name: replace(one, available_on=("a", "b")) for name, one in found.items()}


def test_beside_what_several_nodes_can_use_and_could_not_be_restored_nothing_is_allocated(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("held")
        task = world.start(Rack())
        await world.ask("first", "held", nodes=["a"], selected="a")
        await world.settle()
        await world.kill(task)

        await world.add_claim("disk")
        world.start(Rack("restore"))
        await world.ask("pod", "disk", nodes=["a", "b"])
        await world.settle()
        assert (await world.answer("pod")).viable_nodes == ()

    play(scenario)


def test_a_driver_restores_the_node_that_it_allocated_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("held")
        task = world.start(Rack())
        await world.ask("first", "held", nodes=["b"], selected="b")
        await world.settle()
        await world.kill(task)

        driver = Rack()
        world.start(driver)
        await world.settle()
        assert list(driver.held.values()) == [("b", 1)]

    play(scenario)


def test_what_could_not_be_restored_is_kept_and_nothing_is_allocated_beside_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("held")
        task = world.start(ShelfDriver())
        await world.ask("first", "held", nodes=["a"], selected="a")
        await world.settle()
        assert await world.node_of("held") == "a"
        await world.kill(task)

        await world.add_claim("disk")
        driver = Shelf("restore")
        world.start(driver)
        await world.ask("pod", "disk", nodes=["a", "b"])
        await world.settle()
        entry = await world.answer("pod")
        assert entry.viable_nodes == ("b",)
        assert entry.reason == (
            f"a: driver {DRIVER} could not restore what claim default/held holds (KeyError: 'restore'), "
            "and leaves it alone until that claim is released"
        )

        await world.end("first")
        await world.take_back("held")
        await world.settle()
        assert await world.node_of("held") == ""
        await world.ask("pod", "disk", nodes=["a", "b"], round=2)
        await world.settle()
        assert (await world.answer("pod")).viable_nodes == ("a", "b")

    play(scenario)


def test_a_record_that_is_not_of_the_driver_does_not_end_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("false")
        await world.add_claim("disk")
        handle = {"driverName": DRIVER, "data": {"x": 1}}
        status = {"driverName": DRIVER, "allocation": {"handles": [handle]}}
        await world.client.patch(CLAIMS, "false", {"status": status}, NAMESPACE, subresource="status")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()

        assert "could not restore what claim default/false holds" in (await world.answer("pod")).reason
        await world.take_back("false")
        await world.ask("pod", "disk", nodes=["a"], round=2)
        await world.settle()
        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)


def test_a_watched_object_that_the_driver_does_not_understand_does_not_end_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("strange", 1)
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        world.start(Shelf("observe"))
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()
        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)


def test_an_answer_that_is_too_large_is_replaced_by_the_remedy_and_sent_once(play: Play) -> None:
    """Pods read gRPC's words about its messages, and every event of the pod sent the megabytes again."""

    async def scenario(world: World) -> None:
        sent = 0

        def etcd(call: NumberedCall) -> None:
            nonlocal sent
            if call.resource == POD_SCHEDULINGS and call.writes and b"viable-node" in orjson.dumps(call.body):
                sent += 1
                raise TooLarge(500, "", "rpc error: trying to send message larger than max (2720424 vs. 2097152)")

        await world.add_node("viable-node", 5)
        await world.add_class()
        for claim in ("one", "two"):
            await world.add_claim(claim)
        world.start(ShelfDriver(), FaultClient(world.server.client("driver"), before=etcd))
        await world.ask("pod", "one", "two", nodes=["viable-node"])
        await world.settle()
        for value in ("1", "2"):
            body = {"metadata": {"annotations": {"touched": value}}}
            await world.client.patch(POD_SCHEDULINGS, "pod", body, NAMESPACE)
            await world.settle()

        for entry in (await world.answers("pod")).values():
            assert (entry.viable_nodes, entry.alternatives) == ((), Alternatives())
            assert entry.reason == (
                f"the answer of driver {DRIVER} for 2 claims and 1 node makes the PodScheduling larger than the "
                "API server allows: have each claim request more, or divide the work among several pods"
            )
        assert sent == 1

    play(scenario)


def test_a_question_that_was_replaced_meanwhile_is_nobodys_failure(play: Play) -> None:
    """A pod of the same name: the API server refuses an apply with the former UID as invalid, not with 409."""

    async def scenario(world: World) -> None:
        class Meanwhile(FaultClient):
            replaced = False

            async def request(self, call: Any) -> bytes:
                if call.resource == POD_SCHEDULINGS and call.writes and not self.replaced:
                    self.replaced = True
                    await world.end("pod")
                    await world.ask("pod", "disk", nodes=["a"])
                return await super().request(call)

        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ShelfDriver(), Meanwhile(world.server.client("driver")))
        with capture_logs() as logs:
            await world.ask("pod", "disk", nodes=["a"])
            await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)
        assert [line for line in logs if line["log_level"] in ("warning", "error")] == []

    play(scenario)
