"""What would help: found by trying it out, so that following the advice does help."""

import asyncio

from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.explain.small_devices import two_small_ones_on
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api import reasons
from parley.api.resources import NODES
from parley.drivers import built_in
from parley.explain.remedies import ADVICE

ABOUT_NODES = {reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE}

OF_CLAIMS_ALONE = {
    reasons.ACCEPTED,
    reasons.ALLOCATED,
    reasons.READY,
    reasons.WAIT_FOR_FIRST_CONSUMER,
    reasons.DEALLOCATING,
}

OF_CLASSES_ALONE = {reasons.DRIVER_MISSING, reasons.IN_CONTROLLER}

OF_EVENTS_ALONE = {
    reasons.CLAIM_UNUSED,
    reasons.OVER_SIZE,
    reasons.SIZE_UNKNOWN,
    reasons.DISK_UNRESPONSIVE,
    reasons.ROOM_NOT_HELD,
    reasons.UNREADABLE,
    reasons.PREEMPTED,
    reasons.CLAIM_RECREATED,
}


def test_every_code_that_is_not_about_nodes_has_its_advice() -> None:
    codes = {value for name, value in vars(reasons).items() if name.isupper()}

    assert set(ADVICE) == codes - ABOUT_NODES - OF_CLAIMS_ALONE - OF_CLASSES_ALONE - OF_EVENTS_ALONE


def test_pods_that_take_up_processors_are_found_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        big = {"requests": {"cpu": "6"}}
        await world.add_pod("big", containers=[{"name": "main", "image": "none", "resources": big}])
        await world.settle()
        await world.add_pod("wants", "one", containers=[{"name": "main", "image": "none", "resources": big}])
        await world.settle()

        told = await explained(world, "wants")

        assert told.code == reasons.NO_CANDIDATES
        assert helps(told) == [
            "node a is free when pod default/big ends (created 2 min ago)",
            "another node like a would help",
        ]

    play(scenario)


def test_looking_for_remedies_leaves_what_is_known_as_it_was(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.add_pod("wants", "two")
        await world.settle()

        told = await explained(world, "wants")

        assert [cell.why for row in told.nodes for cell in row.claims] == ["0 of 2 devices free, 2 wanted"]

    play(scenario)


def test_a_pool_of_the_whole_cluster_is_not_helped_by_another_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley(drivers=built_in())
        await world.add_node("a")
        await world.add_node("b")
        await world.add_class("licences", driverName="tokens.parley.dev", parameters={"pool": 1})
        await world.add_template("licence", "licences")
        await world.add_pod("has", "licence", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        await world.add_pod("wants", "licence", nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle()

        told = await explained(world, "wants")

        assert helps(told) == [
            "enough is free on any node when pod default/has ends (holds 1 of class licences, created 2 min ago)"
        ]

    play(scenario)


def test_node_plugins_that_run_nowhere_are_named_first(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.settle()
        await world.plugin_gone("a")
        await world.add_pod("wants", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert "the node plugin of driver device.parley.dev does not run there" in told.message
        assert helps(told)[0] == (
            "no node has a ResourceSlice of driver device.parley.dev: check whether its node plugin runs "
            "(kubectl -n parley-system get pods -o wide)"
        )

    play(scenario)


def test_that_workspaces_are_off_by_default_is_said_where_no_node_has_any(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_node("a")
        await claim(world, "build-42")
        await task(world, "clone", "build-42")

        told = await explained(world, "clone")

        assert "has no disk for workspaces: its node plugin publishes none" in told.message
        assert helps(told)[0] == (
            "no node has a ResourceSlice of driver workspace.parley.dev: check whether its node plugin runs "
            "(kubectl -n parley-system get pods -o wide) and has --driver workspaces (the chart's "
            "nodePlugin.workspaces.enabled)"
        )

    play(scenario)


def test_a_cluster_without_nodes_needs_one(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("wants", "one")
        await world.settle()

        assert helps(await explained(world, "wants")) == ["the cluster has no nodes: add one"]

    play(scenario)


def test_many_ways_are_not_all_told(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_template("one")
        for number in range(8):
            await world.add_node(f"n{number}", 1)
            await world.add_pod(f"p{number}", "one")
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        texts = helps(await explained(world, "wants"))

        assert len(texts) == 7
        assert texts[5:] == ["3 more nodes can be freed in the same way", "another node like n0 would help"]

    play(scenario)


def test_a_node_that_is_free_again_is_told_before_the_controller_looked(play: Play) -> None:
    async def scenario(world: World) -> None:
        controller = world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("wants", "one", nodeSelector={"disk": "ssd"})
        await world.settle()
        world.killed.add(controller)
        controller.cancel()
        await asyncio.sleep(1)
        await world.client.patch(NODES, "a", {"metadata": {"labels": {"disk": "ssd"}}})

        assert helps(await explained(world, "wants")) == [
            "node a would be viable now: check again in a moment, and, if it still waits, whether a controller "
            "leads (parley doctor)"
        ]

    play(scenario)
