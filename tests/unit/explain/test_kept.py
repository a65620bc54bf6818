"""Claims that stay allocated without users: what is explained about them, and about pods that wait for them."""

import asyncio

import pytest
from tests.unit.explain.conftest import Play, explained, helps, kept_on
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World

from parley.api import reasons
from parley.api.resources import CLAIMS, NODES
from parley.explain import overview
from parley.explain.snapshot import read
from parley.explain.text import claim_state

OTHER = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "8"}}}]
"""All of a node's CPU."""


def test_what_it_holds_is_free_when_it_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        until = await kept_on(world, "a")
        await world.add_pod("wants", "one")
        await world.settle(10)

        told = await explained(world, "wants")

        assert helps(told) == [
            "node a is free when claim default/disk ends (holds a/gpu-0): no pod uses it, and it is kept until "
            f"{until} unless it is deleted",
            "another node like a would help",
        ]
        assert [cell.why for row in told.nodes for cell in row.claims] == ["0 of 1 device free, 1 wanted"]

    play(scenario)


def test_a_pod_that_can_not_run_where_its_claim_is_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        until = await kept_on(world, "a", "b")
        await world.add_pod("fills", nodeName="a", containers=OTHER)
        await world.add_pod("wants", claims=["disk"], containers=OTHER)
        await world.settle(10)

        told = await explained(world, "wants")

        assert [claim_state(claim, told) for claim in told.claims] == [
            f"allocated on node a, unused, kept until {until}: a/gpu-0"
        ]
        assert told.code == reasons.CLAIM_STRANDED
        assert helps(told) == [
            f"claim default/disk is kept on node a until {until}, though no pod uses it: recreate it to start "
            "over on another node",
            "node a has claim default/disk, but is not eligible: too little cpu left",
            "node a is free when pod default/fills ends (created 30 s ago)",
            "delete pods on the node, or delete the claim to start over elsewhere",
        ]

    play(scenario)


@pytest.mark.parametrize("scheduler", ["default-scheduler", SECOND_SCHEDULER])
def test_where_the_claim_is_and_why_the_pod_can_not_go_there_whether_anybody_asked_the_controller_or_not(
    play: Play, scheduler: str
) -> None:
    async def scenario(world: World) -> None:
        await kept_on(world, "a")
        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.add_pod("wants", claims=["disk"], schedulerName=scheduler)
        await world.settle(10)

        told = await explained(world, "wants")

        assert (told.code, told.message) == (
            reasons.CLAIM_STRANDED,
            "claim default/disk is allocated on node a, where the pod can't go: node a: cordoned. "
            "Remedy: uncordon the node, or delete the claim to start over elsewhere",
        )

    play(scenario)


def test_one_that_a_pod_uses_shows_no_deadline(play: Play) -> None:
    async def scenario(world: World) -> None:
        await kept_on(world, "a")
        await world.add_pod("runs", claims=["disk"])
        await world.settle(10)

        told = await explained(world, "runs")

        assert told.claims[0].message == "allocated on node a"

    play(scenario)


def test_the_overview_of_uses_has_it_without_a_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        until = await kept_on(world, "a")

        rows = overview.uses(await read(world.client, world.clock(), "default"), "default")

        assert [(row.pod, row.node, row.claim, row.holds, row.kept_until) for row in rows] == [
            ("", "a", "disk", ("a/gpu-0",), until)
        ]

    play(scenario)


def test_an_immediate_claim_without_pods_is_named(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_claim("now", mode="Immediate")
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        assert helps(await explained(world, "wants")) == [
            "node a is free when claim default/now ends (holds a/gpu-0): no pod uses it, and it stays allocated "
            "until it is deleted",
            "another node like a would help",
        ]

    play(scenario)


def test_what_a_node_has_to_confirm_after_a_forced_deletion_is_named(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("ran", "one")
        await world.settle()
        (mirror,) = await world.mirrors()
        world.kubelets.stop("a")
        await world.force_delete("ran")
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        assert helps(await explained(world, "wants")) == [
            f"node a is free when claim default/{mirror.metadata.name} ends (holds a/gpu-0): a pod that used it "
            "on node a was deleted by force, and the node plugin there has yet to confirm that it is not prepared "
            "any more: bring the node back, or, if it is shut down, taint it node.kubernetes.io/out-of-service",
            "another node like a would help",
        ]

    play(scenario)


@pytest.mark.parametrize("helped", [True, False])
def test_a_claim_is_to_be_recreated_only_if_that_helps(play: Play, helped: bool) -> None:
    async def scenario(world: World) -> None:
        until = await kept_on(world, "a", "b", "c")
        for node in ("b", "c")[helped:]:
            await world.add_pod(f"on-{node}", "one", nodeSelector={"kubernetes.io/hostname": node})
        await world.publish("b", ["gpu-0", "gpu-1", "gpu-2"][: 3 if helped else 1])
        await world.settle()
        await world.add_pod("wants", "one", claims=["disk"])
        await world.settle()

        told = await explained(world, "wants")

        assert [one.text for one in told.remedies if one.kind == "claimEnds"] == [
            f"claim default/disk is kept on node a until {until}, though no pod uses it: recreate it to start "
            "over on another node"
        ] * helped
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        await world.add_claim("disk")
        await world.settle()
        assert await world.node_of("wants") == ("b" if helped else "")

    play(scenario)


def test_no_other_node_helps_a_pod_whose_claim_is_where_it_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        await kept_on(world, "a")
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.add_pod("has", "one")
        await world.settle()
        await world.add_pod("wants", "one", claims=["disk"])
        await world.settle()

        told = await explained(world, "wants")

        assert [(one.kind, one.pods) for one in told.remedies] == [("podEnds", ("default/has",))]
        await world.add_node("like-a", 2)
        await world.settle()
        assert await world.node_of("wants") == ""

    play(scenario)


def test_what_is_kept_after_its_pod_is_not_free_when_that_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class(whenUnused={"keepSeconds": 600})
        await world.add_template("one")
        await world.add_claim("disk")
        await world.add_pod("runs", claims=["disk"])
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert helps(told) == [
            "node a is free when claim default/disk ends (holds a/gpu-0): pod default/runs uses it, and it is "
            "kept for 600 s after that unless it is deleted",
            "another node like a would help",
        ]
        await world.delete_pod("runs")
        await world.settle()
        assert await world.node_of("wants") == ""
        await asyncio.sleep(600)
        assert await world.node_of("wants") == "a"

    play(scenario)


@pytest.mark.parametrize("elsewhere", [1, 2])
def test_a_claim_that_the_pod_is_to_share_is_released_with_its_user(play: Play, elsewhere: int) -> None:
    """Then the pod needs room for it, too, and is not tied to its node any more."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class(shareable=True)
        await world.add_template("one")
        await world.add_claim("shared")
        await world.add_pod("user", claims=["shared"])
        await world.settle()
        await world.add_node("b", elsewhere)
        await world.add_pod("wants", "one", claims=["shared"])
        await world.settle()

        told = await explained(world, "wants")

        assert told.code == reasons.NOTHING_VIABLE
        expected = "no node would be viable even if all other pods ended: node a: claim gpu-0: 0 of 1 device free"
        if elsewhere == 2:
            expected = "node b is free when pod default/user ends, with which claim default/shared is released"
        assert [text for text in helps(told) if text.startswith(expected)]
        assert not any("node a is free" in text for text in helps(told))
        await world.delete_pod("user")
        await world.settle()
        assert await world.node_of("wants") == ("" if elsewhere == 1 else "b")

    play(scenario)


def test_of_a_claim_that_was_allocated_before_no_driver_was_asked(play: Play) -> None:
    """It is no answer that the node where the pod runs is not viable."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 2)
        await world.add_class(shareable=True)
        await world.add_template("one")
        await world.add_claim("shared")
        await world.add_pod("first", claims=["shared"])
        await world.settle()
        await world.add_pod("second", "one", claims=["shared"])
        await world.settle()

        told = await explained(world, "second")

        assert [(row.node, row.verdict) for row in told.nodes] == [("a", "selected")]
        assert not any(cell.viable is False for row in told.nodes for cell in row.claims)

    play(scenario)
