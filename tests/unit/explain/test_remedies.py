"""What would help: found by trying it out, so that following the advice does help."""

import asyncio

import pytest
from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.explain.test_snapshot import Refusing
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api import reasons
from parley.api.names import EXTENDER_SAYS
from parley.api.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, TEMPLATES
from parley.control.decision.kept import KEPT
from parley.drivers import built_in
from parley.explain.explaining import explain
from parley.explain.remedies import ADVICE
from parley.kube.client import ApiError, Call, Forbidden
from parley.simulate.status_writes import patch_pod

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


async def two_small_ones_on(world: World, node: str) -> None:
    """A node with two devices, each held by a pod of its own."""
    world.start_parley(drivers=built_in())
    await world.add_node(node, 2)
    await world.add_class()
    await world.add_template("one")
    await world.add_template("two", count=2)
    await world.add_pod("left", "one")
    await world.add_pod("right", "one")
    await world.settle()


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


def test_a_limit_names_who_holds_what_it_counts(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 2}]})
        await world.add_pod("wants", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert told.code == reasons.LIMIT_REACHED
        assert helps(told) == [
            "pod default/left holds 1 of class gpu, released when it ends",
            "pod default/right holds 1 of class gpu, released when it ends",
            ADVICE[reasons.LIMIT_REACHED],
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


@pytest.mark.parametrize("lists_namespaces", [True, False])
def test_a_limit_of_namespaces_with_a_label_names_who_holds_what_it_counts(
    play: Play, lists_namespaces: bool
) -> None:
    """And not who holds something of another class. Who may not list namespaces may get the own one."""

    def refuse(call: Call) -> ApiError | None:
        hidden = call.resource == NAMESPACES and call.verb == "list" and not lists_namespaces
        return Forbidden(403, "Forbidden", "namespaces is forbidden") if hidden else None

    async def scenario(world: World) -> None:
        labels = {"tier": "trial"}
        await world.client.create(NAMESPACES, {"metadata": {"name": "default", "labels": labels}})
        world.start_parley()
        await world.add_node("a", 4)
        await world.add_class(limits=[{"namespaceSelector": {"matchLabels": labels}, "claims": 1}, {"claims": 9}])
        await world.add_class("other", limits=[{"namespaceSelector": {"matchLabels": labels}, "claims": 9}])
        await world.add_template("one")
        await world.add_template("another", "other")
        await world.add_pod("holds", "one")
        await world.add_pod("apart", "another")
        await world.settle()
        await world.add_pod("wants", "one", "another")
        await world.settle()

        told = await explain(Refusing(world.client, refuse), world.clock(), "default", "wants")

        assert told.code == reasons.LIMIT_REACHED
        assert helps(told)[:-1] == ["pod default/holds holds 1 of class gpu, released when it ends"]
        assert told.unread == (() if lists_namespaces else ("namespaces is forbidden",))

    play(scenario)


def test_nobodys_end_helps_a_pod_that_wants_more_than_the_limit(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 1}]})
        await world.add_pod("wants", "one", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert (told.code, helps(told)) == (reasons.LIMIT_REACHED, [])
        assert told.message.endswith("allows it 1 in all: request less, or raise the class's limits[0].claims")

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


def test_a_limit_names_nobody_who_holds_other_classes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.add_class("slots", driverName="tokens.parley.dev", parameters={"pool": 9})
        await world.add_template("slot", "slots")
        await world.add_pod("slotted", "slot")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 2}]})
        await world.settle()
        await world.add_pod("wants", "one", "slot")
        await world.settle()

        told = await explained(world, "wants")

        assert [one.pods for one in told.remedies if one.kind == "podEnds"] == [
            ("default/left",),
            ("default/right",),
        ]

    play(scenario)


def test_a_limit_names_claims_that_no_pod_uses_and_not_everybody(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 9)
        await world.add_class(limits=[{"claims": 7}])
        await world.add_template("one")
        for number in range(7):
            await world.add_claim(f"c{number}", mode="Immediate")
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        texts = helps(await explained(world, "wants"))

        assert texts == [
            *(f"claim default/c{number} holds 1 of class gpu, released when it is deleted" for number in range(5)),
            "2 more claims of the namespace count for the limit: see `parley get uses -n default`",
            ADVICE[reasons.LIMIT_REACHED],
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
