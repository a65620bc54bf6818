"""What each class has and what is free: as the driver itself counts, and so as the class's status says."""

import asyncio
from typing import Any

import pytest
from tests.support.effort import cpu_seconds
from tests.unit.explain.conftest import Play, text_of
from tests.unit.explain.test_snapshot import Refusing
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.reserving import begin, claim, task
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import BUILTIN_CLAIMS, CLASSES
from parley.drivers import built_in
from parley.explain.explaining import WaitingPod, explain_waiting
from parley.explain.overview import ahead, classes, waits
from parley.explain.snapshot import read
from parley.kube.client import Call, Forbidden

ON_B = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
    ]
}


@pytest.mark.parametrize(
    ("change", "total_and_free"),
    [({"suitableNodes": ON_B}, (4, 4)), ({"parameters": {"pool": 2, "scope": "Node"}}, (4, 2))],
)
def test_what_is_held_on_one_node_takes_nothing_from_another(
    play: Play, change: dict[str, Any], total_and_free: tuple[int, int]
) -> None:
    async def scenario(world: World) -> None:
        world.start_parley(drivers=built_in())
        await world.add_node("a")
        await world.add_node("b")
        await world.add_class("slots", driverName="tokens.parley.dev", parameters={"pool": 4, "scope": "Node"})
        await world.add_template("all", "slots", count=4)
        await world.add_pod("has", "all", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        await world.client.patch(CLASSES, "slots", change)
        await world.settle()

        (row,) = classes(await read(world.client, world.clock(), "default"))

        status = (await world.client.get(CLASSES, "slots")).status
        assert (row.total, row.free) == (status.total, status.free) == total_and_free

    play(scenario)


def test_a_pod_counts_for_the_class_of_the_claim_that_another_pod_uses(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 2)
        await world.add_class()
        await world.add_claim("shared")
        await world.add_pod("uses", claims=["shared"])
        await world.settle()
        await world.add_pod("waits", claims=["shared"])
        await world.add_pod("waits-longer", claims=["shared"])
        await world.settle()

        snapshot = await read(world.client, world.clock(), "default")

        assert [row.waiting for row in classes(snapshot)] == [2]
        assert [(row.code, row.classes) for row in waits(snapshot, None)] == [("ClaimInUse", ("gpu",))] * 2
        assert sorted(row.ahead for row in waits(snapshot, None)) == [0, 1]

    play(scenario)


def test_a_pod_counts_for_the_class_of_a_template_that_no_claim_was_made_from(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.stop_claim_controller()
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("waits", "one")
        await world.settle()

        snapshot = await read(world.client, world.clock(), "default")

        assert [row.waiting for row in classes(snapshot)] == [1]
        assert [row.classes for row in waits(snapshot, None)] == [("gpu",)]

    play(scenario)


def test_a_bound_pod_without_its_claim_waits_on_its_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_claim("named")
        await world.add_pod("uses", claims=["named"])
        await world.settle()
        await world.add_pod("put", "one", nodeName="a")
        await world.settle()
        await world.add_pod("put-later", claims=["named"], nodeName="a")
        await world.settle()

        snapshot = await read(world.client, world.clock(), "default")

        assert [row.waiting for row in classes(snapshot)] == [2]
        rows = [(row.pod, row.node, row.code, row.classes, row.ahead) for row in waits(snapshot, None)]
        assert rows == [
            ("put", "a", "NothingViable", ("gpu",), 0),
            ("put-later", "a", "ClaimInUse", ("gpu",), 1),
        ]
        told = await explain_waiting(world.client, snapshot, "default")
        assert [(one.name, one.state, one.ahead) for one in told] == [
            ("put", "bound", ()),
            ("put-later", "bound", ("default/put",)),
        ]
        assert "NothingViable" in text_of(told[0]).partition("\n")[0]

    play(scenario)


async def bound_where_no_kubelet_is(world: World) -> None:
    """The pod `has` is bound to node a and has its claim, and no kubelet starts it."""
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    world.kubelets.stop("a")
    await world.add_pod("has", "one")
    await world.settle()


def test_a_bound_pod_whose_claim_was_cleared_waits_on_its_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        await bound_where_no_kubelet_is(world)
        await world.crash()
        (mirror,) = await world.mirrors()
        name = mirror.metadata.name
        cleared = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
        await world.client.patch(BUILTIN_CLAIMS, name, cleared, "default", subresource="status")

        (row,) = waits(await read(world.client, world.clock(), "default"), None)

        assert (row.pod, row.node, row.classes) == ("has", "a", ("gpu",))
        assert row.message == (
            "the pod is bound to node a, and claim gpu-0 is not allocated for it there yet: the controller does "
            "that within seconds; if it does not, run `parley doctor`"
        )

    play(scenario)


def test_nothing_is_concluded_about_a_bound_pod_whose_claims_are_not_read(play: Play) -> None:
    async def scenario(world: World) -> None:
        await bound_where_no_kubelet_is(world)
        assert (await world.pod("has")).status.phase in ("", "Pending")

        def refuse(call: Call) -> Forbidden | None:
            return Forbidden(403, "Forbidden", "refused") if call.resource.plural == "resourceclaims" else None

        snapshot = await read(Refusing(world.client, refuse), world.clock(), "default")

        assert waits(snapshot, None) == []

    play(scenario)


def test_a_pod_that_nodes_are_offered_for_waits_for_the_class(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1))])
        await world.add_pod("there", nodeName="a")
        same = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "test"}}}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same]}}
        await world.add_pod("waits", "shelf", affinity=apart)
        await asyncio.sleep(400)

        snapshot = await read(world.client, world.clock(), "default")

        (row,) = waits(snapshot, None)
        assert (row.code, row.classes) == ("SchedulerChooses", ("shelf",))
        assert [row.waiting for row in classes(snapshot)] == [1]

    play(scenario)


def test_the_space_for_workspaces_is_that_of_the_classs_status(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await claim(world, "build-42")
        await task(world, "clone", "build-42")

        snapshot = await read(world.client, world.clock(), "default")

        row = next(row for row in classes(snapshot) if row.name == "workspace")
        status = (await world.client.get(CLASSES, "workspace")).status
        assert row.what == "MiB"
        assert (row.total, row.free) == (status.total, status.free)
        assert row.total is not None
        assert row.free == row.total - 1

    play(scenario)


def waiting_for(*names: str) -> WaitingPod:
    return WaitingPod("", "", "team/p", "", frozenset(names), "", "")


def test_who_waits_longer_is_each_pod_that_waits_for_one_of_the_same_classes() -> None:
    wanted = ("a", "ab", "b", "c", "cba")

    assert ahead([waiting_for(*names) for names in wanted]) == [0, 1, 1, 0, 4]


def test_pods_that_each_wait_for_other_classes_are_counted_without_comparing_all_with_all() -> None:
    """A claim may name classes that do not exist: as many as there are pods, or more."""
    line = [waiting_for("gpu", *(f"none-{pod}-{number}" for number in range(20))) for pod in range(2_000)]

    assert cpu_seconds(lambda: ahead(line)) < 0.25
    assert ahead(line) == list(range(2_000))
