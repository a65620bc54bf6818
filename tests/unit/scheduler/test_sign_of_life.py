"""A node is a candidate only where the driver's node plugin is alive, which its ResourceSlices show."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.api import reasons
from parley.api.resources import RESOURCE_SLICES
from parley.drivers import built_in

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

GONE = "the node plugin of driver device.parley.dev does not run there"


async def two_nodes(world: World, **class_: Any) -> None:
    world.start_parley(drivers=built_in())
    await world.add_node("a", devices=1)
    await world.add_node("b")
    await world.add_class(**class_)
    await world.add_template()
    await world.settle()


def test_a_node_whose_plugin_is_gone_is_no_candidate_until_it_is_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.plugin_gone("a")
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == ""
        scheduling = await world.scheduling("p")
        assert scheduling.spec.candidate_nodes == ("b",)
        assert f"node a: {GONE}" in scheduling.status.message
        await world.publish("a", ["gpu-0"])
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_when_all_plugins_are_gone_no_node_comes_into_question(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        for node in ("a", "b"):
            await world.plugin_gone(node)
        await world.add_pod("p", "one")
        await world.settle()
        scheduling = await world.scheduling("p")
        assert scheduling.status.waiting_for == reasons.NO_CANDIDATES
        assert scheduling.status.message.startswith(f"0 of 2 nodes are available: nodes a, b: {GONE}")

    play(scenario)


def test_an_immediate_claim_is_not_allocated_where_no_plugin_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.plugin_gone("a")
        await world.add_claim("disk", mode="Immediate")
        await world.settle()
        (condition,) = [c for c in (await world.claim("disk")).status.conditions if c.type == reasons.ALLOCATED]
        assert GONE in condition.message
        await world.publish("a", ["gpu-0"])
        await world.settle()
        assert (await world.claim("disk")).status.allocation is not None

    play(scenario)


def test_a_class_without_a_node_part_needs_no_plugin(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.plugin_gone("b")
        await world.add_class("licences", driverName="tokens.parley.dev", nodePart="None", parameters={"pool": 1})
        await world.add_template("licence", "licences")
        await world.add_pod("p", "licence", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_of_a_driver_that_never_published_anything_nothing_is_known(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("licences", driverName="tokens.parley.dev", parameters={"pool": 1})
        await world.add_template("licence", "licences")
        await world.add_pod("p", "licence", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_node_takes_a_driver_that_publishes_no_slices_from_no_other_node(play: Play) -> None:
    """What a node writes without the right that the policy `published-slices` asks for."""

    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("licences", driverName="tokens.parley.dev", parameters={"pool": 1})
        await world.add_template("licence", "licences")
        spec = {"driver": "tokens.parley.dev", "nodeName": "a", "pool": {"name": "a", "generation": 1}}
        await world.create(RESOURCE_SLICES, {"metadata": {"name": "false"}, "spec": spec})
        await world.add_pod("p", "licence", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_running_pod_keeps_what_it_has_when_its_nodes_plugin_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one")
        await world.settle()
        await world.plugin_gone("a")
        await world.settle()
        assert (await world.pod("p")).status.phase == "Running"
        assert sum((await world.devices()).values()) == 1
        assert not (await world.client.list(RESOURCE_SLICES)).items[0].spec.devices

    play(scenario)
