"""Claims that can be used on all nodes with some label: nodes that come later count, those that lose it do not."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.shelf import ZONE, Behaviour, ZoneDriver, add_shelf_class, restart

from parley.api import reasons
from parley.api.resources import NODES

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")

IN_ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}


ZONES = {"n0": "a"}


async def begin(world: World) -> Behaviour:
    """The claim `common` is allocated on n0, in zone a, for p0; n1 is in zone b."""
    behaviour = Behaviour(places={"n0": 9})
    await world.add_node("n0", labels={ZONE: "a"})
    await world.add_node("n1", labels={ZONE: "b"})
    await add_shelf_class(world, shareable=True)
    await world.add_claim("common", "shelf")
    world.start_parley(drivers=[ZoneDriver(behaviour, ZONES)])
    await world.add_pod("p0", claims=["common"])
    await world.settle()
    assert await runs_on(world, "p0") == "n0"
    return behaviour


async def runs_on(world: World, name: str) -> str:
    pod = await world.pod(name)
    return pod.spec.node_name if pod.status.phase == "Running" else ""


async def cordon(world: World, node: str) -> None:
    await world.client.patch(NODES, node, {"spec": {"unschedulable": True}})


async def label(world: World, node: str, zone: str) -> None:
    await world.client.patch(NODES, node, {"metadata": {"labels": {ZONE: zone}}})


@pytest.mark.parametrize("restarts", [False, True], ids=["", "new-leader"])
def test_a_new_node_of_the_zone_takes_users_of_a_claim_that_was_allocated_before(
    play: Play, restarts: bool
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        record = (await world.claim("common")).status.allocation
        mirror = await world.mirror("common")
        assert record is not None
        assert record.available_on_nodes is not None
        assert record.available_on_nodes.wire() == IN_ZONE_A
        assert mirror is not None
        assert mirror.status.allocation is not None
        (term,) = (mirror.status.allocation.node_selector or pytest.fail("no selector")).node_selector_terms
        assert [(r.key, r.operator, r.values) for r in term.match_expressions] == [(ZONE, "In", ["a"])]
        await cordon(world, "n0")
        if restarts:
            await restart(world, [ZoneDriver(behaviour, ZONES)])
        await world.add_pod("p1", claims=["common"])
        await world.settle()
        await world.add_node("n2", labels={ZONE: "b"})
        await world.settle()
        assert await runs_on(world, "p1") == ""

        await world.add_node("n3", labels={ZONE: "a"})
        await world.settle()

        assert await runs_on(world, "p1") == "n3"
        assert await runs_on(world, "p0") == "n0"
        await world.finish_pod("p0")
        await world.settle()
        assert behaviour.calls["deallocate"] == 0
        await world.finish_pod("p1")
        await world.settle()
        assert behaviour.calls["deallocate"] == 1
        assert (await world.claim("common")).status.allocation is None

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "new-leader"])
def test_a_node_that_leaves_the_zone_keeps_its_users_and_takes_no_more(play: Play, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        await label(world, "n0", "b")
        if restarts:
            await restart(world, [ZoneDriver(behaviour, ZONES)])
        await world.settle()
        await world.add_pod("p1", claims=["common"])
        await world.settle()

        assert await runs_on(world, "p0") == "n0"
        assert await runs_on(world, "p1") == ""
        assert behaviour.calls["deallocate"] == 0
        mirror = await world.mirror("common")
        assert mirror is not None
        assert [user.name for user in mirror.status.reserved_for] == ["p0"]

        await label(world, "n1", "a")
        await world.settle()
        assert await runs_on(world, "p1") == "n1"
        for name in ("p0", "p1"):
            await world.finish_pod(name)
        await world.settle()
        assert behaviour.calls["deallocate"] == 1

    play(scenario)


def test_a_claim_of_one_pod_alone_stays_with_it_when_its_node_leaves_the_zone(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        await world.add_template("one", "shelf")
        await world.add_pod("own", "one")
        await world.settle()
        assert await runs_on(world, "own") == "n0"

        await label(world, "n0", "b")
        await world.settle()
        await restart(world, [ZoneDriver(behaviour, ZONES)])
        await world.settle()

        assert await runs_on(world, "own") == "n0"
        assert behaviour.calls["deallocate"] == 0

    play(scenario)


def test_an_immediate_claim_takes_users_on_new_nodes_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_claim("at-once", "shelf", mode="Immediate")
        await world.settle()
        record = (await world.claim("at-once")).status.allocation
        assert record is not None
        assert record.available_on_nodes is not None
        assert record.available_on_nodes.wire() == IN_ZONE_A
        await cordon(world, "n0")
        await world.add_pod("p1", claims=["at-once", "common"])
        await world.settle()
        assert await runs_on(world, "p1") == ""

        await world.add_node("n2", labels={ZONE: "a"})
        await world.settle()

        assert await runs_on(world, "p1") == "n2"

    play(scenario)


def test_a_pod_that_somebody_puts_on_a_node_outside_of_the_zone_takes_nothing_from_the_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        await world.add_pod("intruder", claims=["common"], nodeName="n1")
        await world.settle()
        assert await runs_on(world, "p0") == "n0"
        assert (behaviour.calls["allocate"], behaviour.calls["deallocate"]) == (1, 0)

        await world.finish_pod("p0")
        await world.settle()
        assert (behaviour.calls["allocate"], behaviour.calls["deallocate"]) == (1, 0)
        await world.delete_pod("intruder")
        await world.settle()

        assert behaviour.calls["allocate"] == behaviour.calls["deallocate"]
        assert (await world.claim("common")).status.allocation is None

    play(scenario)


class LocalZoneDriver(ZoneDriver):
    """What is released on a node changes the answers about that node alone."""

    node_local = True


def test_what_a_node_that_left_the_zone_gets_back_serves_a_waiting_pod_though_nobody_knows_the_node_any_more(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        behaviour.places = {"n0": 1}
        await label(world, "n0", "b")
        await restart(world, [LocalZoneDriver(behaviour, {})])
        await world.add_template("one", "shelf")
        await world.add_pod("waits", "one")
        await world.settle()
        assert await runs_on(world, "waits") == ""

        await world.finish_pod("p0")
        await world.settle()

        assert await runs_on(world, "waits") == "n0"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_is_waiting_is_told_by_which_labels_the_claim_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        behaviour.places = {"n0": 9, "n1": 1}
        await world.add_claim("own", "shelf")
        await world.add_pod("p1", claims=["own"], nodeName="n1")
        await world.settle()
        await world.add_pod("p2", claims=["common", "own"])
        await world.settle()
        status = (await world.scheduling("p2")).status
        assert status.waiting_for == reasons.CONFLICTING_ALLOCATIONS
        assert status.message == (
            f"no node has all claims of the pod: claim {NAMESPACE}/common is allocated on nodes with {ZONE}=a; "
            f"claim {NAMESPACE}/own is allocated on node n1. Remedy: delete those on one of the nodes to "
            "start over"
        )

        await label(world, "n1", "a")
        await world.settle()

        assert await runs_on(world, "p2") == "n1"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_driver_that_allocates_where_the_node_is_not_is_at_fault(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9)
        await world.add_node("n0", labels={ZONE: "b"})
        await add_shelf_class(world)
        await world.add_claim("common", "shelf")
        world.start_parley(drivers=[ZoneDriver(behaviour, ZONES)])
        await world.add_pod("p0", claims=["common"])
        await world.settle(quiet=5.0)
        assert await runs_on(world, "p0") == ""
        assert (await world.claim("common")).status.allocation is None
        assert behaviour.calls["deallocate"] == behaviour.calls["allocate"] > 0
        told = [message for _, message in await world.events_on("p0")]
        why = (
            f"claim 'common': available_on selects nodes with {ZONE}=a, and node n0, on which the claim was to be "
            "allocated, is none of them now: it is tried again. If it stays so, correct the driver, or the labels "
            "of the node"
        )
        assert any(why in message for message in told)

    play(scenario)
