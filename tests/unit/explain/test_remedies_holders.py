"""Who holds what a pod waits for, and whose end would help it."""

import asyncio

import pytest
from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.explain.small_devices import two_small_ones_on
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api import reasons
from parley.api.names import EXTENDER_SAYS
from parley.api.resources import CLAIMS, PODS, TEMPLATES
from parley.control.decision.kept import KEPT
from parley.explain.remedies import ADVICE
from parley.simulate.status_writes import patch_pod


@pytest.mark.parametrize("ending", [("left", "right"), ("left",)])
def test_all_pods_that_have_to_end_are_named_and_no_other(play: Play, ending: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.add_pod("idle")
        await world.add_pod("wants", "two" if len(ending) == 2 else "one")
        await world.settle()

        told = await explained(world, "wants")

        assert {pod for remedy in told.remedies[:1] for pod in remedy.pods} == {
            f"default/{name}" for name in ending
        }
        for name in ending:
            await world.delete_pod(name)
        await world.settle()
        assert await world.node_of("wants") == "a"

    play(scenario)


@pytest.mark.parametrize("scheduler", ["default-scheduler", SECOND_SCHEDULER])
@pytest.mark.parametrize("class_says", ["LowerPriority", "Never"])
def test_whose_claims_would_be_taken_is_told_beforehand(play: Play, class_says: str, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 2)
        await world.add_class(preemption=class_says)
        await world.add_template("one")
        for name, priority in (("low", 1), ("lower", 0)):
            await world.add_pod(name, "one", priority=priority)
        await world.settle()
        await world.crash()
        await world.add_pod("wants", "one", priority=10, schedulerName=scheduler)
        await world.settle()

        told = await explained(world, "wants")

        assert [(one.text, one.pods, one.nodes) for one in told.remedies if one.kind == "preemption"] == [
            (
                "the controller evicts pod default/lower of lower priority from node a for it as soon as it may: "
                "the class has preemption: LowerPriority",
                ("default/lower",),
                ("a",),
            )
        ][: class_says == "LowerPriority"]

    play(scenario)


def test_a_claim_that_is_being_deleted_is_gone_when_its_pod_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("c")
        await world.add_pod("has", claims=["c"])
        await world.settle()
        await world.client.delete(CLAIMS, "c", "default")
        await world.add_pod("wants", claims=["c"])
        await world.settle()

        assert helps(await explained(world, "wants")) == [
            "claim c is gone when pod default/has ends",
            ADVICE[reasons.CLAIM_BEING_DELETED],
        ]

    play(scenario)


def test_what_is_kept_for_a_pod_that_others_were_evicted_for_is_not_free(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 2)
        await world.add_class(preemption="LowerPriority")
        await world.add_template("one")
        await world.add_template("two", count=2)
        await world.add_pod("low", "one", priority=1)
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("high", "two", priority=10)
        await asyncio.sleep(10)
        await world.add_pod("wants", "one", priority=0)
        await asyncio.sleep(10)

        told = await explained(world, "wants")

        assert helps(told) == [f"wait for node a: {KEPT}"]
        assert [cell.why for row in told.nodes for cell in row.claims] == [KEPT]
        assert KEPT in told.message
        world.kubelets.start("a")
        await world.settle()
        assert (await world.node_of("high"), await world.node_of("wants")) == ("a", "")

    play(scenario)


def test_a_bound_pod_without_its_device_is_told_who_has_it_on_that_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("has", "one", nodeName="a")
        await world.settle()
        await world.add_pod("put", "one", nodeName="a")
        await world.settle()

        told = await explained(world, "put")

        assert (told.state, told.code) == ("bound", reasons.NOTHING_VIABLE)
        assert told.message == (
            "the pod is bound to node a: claim gpu-0: 0 of 1 device free, 1 wanted. Remedy: free resources on "
            "that node, or recreate the pod, and let its scheduler choose the node"
        )
        assert helps(told) == ["node a is free when pod default/has ends (holds gpu-0, created 2 min ago)"]
        await world.delete_pod("has")
        await world.settle()
        assert (await world.pod("put")).status.phase == "Running"

    play(scenario)


def test_who_waits_for_the_same_claim_and_is_served_first(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("mine")
        await world.add_pod("u1", claims=["mine"])
        await world.settle()
        for name, priority in (("u2", 0), ("u3", 0), ("u4", 5)):
            await world.add_pod(name, claims=["mine"], priority=priority)
            await world.settle()

        told = {name: helps(await explained(world, name))[0] for name in ("u2", "u3", "u4")}

        free = "claim mine is free when pod default/u1 ends"
        assert told == {
            "u2": f"{free}; pod default/u4 waits for it, too, and is served first",
            "u3": f"{free}; pods default/u4, default/u2 wait for it, too, and are served first",
            "u4": free,
        }
        served = []
        for name in ("u1", "u4", "u2"):
            await world.delete_pod(name)
            await world.settle()
            served += [pod for pod in ("u2", "u3", "u4") if pod not in served and await world.node_of(pod)]
        assert served == ["u4", "u2", "u3"]

    play(scenario)


def test_who_has_a_bound_pods_device_may_be_of_another_namespace(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
        template = {"metadata": {"name": "one"}, "spec": {"spec": {"resourceClassName": "gpu"}}}
        containers = [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}]
        pod = {"metadata": {"name": "has"}, "spec": {"resourceClaims": [entry], "containers": containers}}
        await world.client.create(TEMPLATES.untyped(), template, "team")
        await world.client.create(PODS, pod, "team")
        await world.settle()
        await world.add_pod("put", "one", nodeName="a")
        await world.settle()

        told = await explained(world, "put")

        assert [remedy.pods for remedy in told.remedies] == [("team/has",)]

    play(scenario)


@pytest.mark.parametrize("scheduler", ["default-scheduler", SECOND_SCHEDULER])
def test_that_a_nomination_for_another_node_delays_evictions_is_told(play: Play, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class(preemption="LowerPriority")
        await world.add_template("one")
        for node, priority in ("a", 100), ("b", 0):
            selector = {"kubernetes.io/hostname": node}
            await world.add_pod(f"on-{node}", "one", priority=priority, nodeSelector=selector)
        await world.settle()
        await world.crash()
        await world.add_pod("wants", "one", priority=10, schedulerName=scheduler)
        await patch_pod(world.client, await world.pod("wants"), {"nominatedNodeName": "a"})
        asked = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": EXTENDER_SAYS}
        if scheduler == SECOND_SCHEDULER:
            await patch_pod(world.client, await world.pod("wants"), {"conditions": [asked]})

        told = await explained(world, "wants")

        (evicts,) = [one for one in told.remedies if one.kind == "preemption"]
        assert evicts.nodes == ("b",)
        delay = (
            ". Evictions wait while the pod is nominated for node a (status.nominatedNodeName), because its "
            "scheduler may be binding it there, but for 15 minutes at most"
        )
        assert evicts.text.endswith(delay) == (scheduler == "default-scheduler")

    play(scenario)


def test_nodes_that_another_driver_refused_come_last(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        world.start_driver(ShelfDriver(Behaviour({"a": 0, "b": 1})))
        await world.add_node("a", 1)
        await world.add_node("b", 1)
        await world.add_class()
        await world.add_template("one")
        await add_shelf_class(world)
        await world.add_pod("x", "one")
        await world.add_pod("y", "one")
        await world.settle()
        await world.add_pod("wants", "one", "shelf")
        await world.settle()

        free = [remedy for remedy in (await explained(world, "wants")).remedies if remedy.kind == "podEnds"]

        assert [remedy.nodes for remedy in free] == [("b",), ("a",)]
        assert [remedy.text.partition(", if driver ")[2] for remedy in free] == [
            "",
            "shelf.example.com has room for claim gpu-1 there (now: full)",
        ]

    play(scenario)
