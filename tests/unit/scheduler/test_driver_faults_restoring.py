"""What drivers raise about records and objects: the controller goes on without what could not be read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.failing_drivers import NAMESPACE, Blind, Failing, with_tokens

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


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
