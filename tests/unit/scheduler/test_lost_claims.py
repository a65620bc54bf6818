"""A user deletes the claim that Kubernetes made from a template for a pod that waits: it is made again only when
the pod changes, and until then the pod's user is told."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import BUILTIN_CLAIMS
from parley.explain.explaining import explain
from parley.explain.text import headline

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


async def delete_claim_of(world: World, pod: str) -> str:
    (name,) = [one.metadata.name for one in await world.mirrors() if one.metadata.owner_references[0].name == pod]
    await world.client.delete(BUILTIN_CLAIMS, name, "default")
    return name


def said(pod: str, claim: str, template: str = "one") -> str:
    return (
        f"claim default/{claim}, which Kubernetes generated for 'gpu-0' from template default/{template}, was "
        "deleted, and is recreated when the pod changes: recreate the pod, or change it "
        f"(kubectl annotate pod {pod} -n default example.com/changed=1)"
    )


async def one_waits(world: World, **spec: Any) -> None:
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template()
    await world.add_pod("has", "one")
    await world.settle()
    await world.add_pod("waits", "one", **spec)
    await world.settle()


@pytest.mark.parametrize("bound_to", ["", "a"])
@pytest.mark.parametrize("replaced", [False, True], ids=["", "controller replaced"])
def test_the_pod_says_that_its_claim_was_deleted_and_what_to_do(play: Play, bound_to: str, replaced: bool) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world, **({"nodeName": bound_to} if bound_to else {}))
        assert (await world.scheduling("waits")).status.waiting_for == "NothingViable"
        name = await delete_claim_of(world, "waits")
        if replaced:
            await world.crash()
            world.start_parley()
        await world.settle()

        status = (await world.scheduling("waits")).status
        assert (status.waiting_for, status.message) == ("ClaimNotFound", said("waits", name))
        assert ("ClaimNotFound", said("waits", name)) in await world.events_on("waits")

        await world.change_pod("waits")
        await world.settle()
        assert (await world.scheduling("waits")).status.waiting_for == "NothingViable"
        await world.delete_pod("has")
        await world.settle()
        assert (await world.pod("waits")).status.phase == "Running"

    play(scenario)


def test_it_is_explained_in_the_same_words(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        name = await delete_claim_of(world, "waits")
        await world.settle()

        told = await explain(world.client, world.clock(), "default", "waits")

        assert headline(told).plain.endswith(": ClaimNotFound")
        assert (told.message, [claim.state for claim in told.claims]) == (said("waits", name), ["ClaimNotFound"])
        assert told.remedies == ()

    play(scenario)


def test_a_pod_that_waited_for_a_drivers_answer_waits_for_none_now(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a")
        await add_shelf_class(world)
        await world.add_pod("waits", "shelf")
        await asyncio.sleep(5)
        assert (await world.scheduling("waits")).status.waiting_for == "WaitingForDrivers"
        name = await delete_claim_of(world, "waits")
        await world.settle()

        status = (await world.scheduling("waits")).status
        assert (status.waiting_for, status.message) == ("ClaimNotFound", said("waits", name, "shelf"))
        told = await explain(world.client, world.clock(), "default", "waits")
        assert [finding.text for finding in told.findings if finding.by.startswith("driver")] == []

        world.start_driver(ShelfDriver(Behaviour({"a": 1})))
        await world.change_pod("waits")
        await world.settle()
        assert (await world.pod("waits")).status.phase == "Running"

    play(scenario)


def test_nothing_is_said_while_only_the_watch_of_claims_is_behind(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = HeldWatch(world.server.client(), BUILTIN_CLAIMS)
        world.start_parley(client)
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template()
        await world.settle()
        client.open.clear()
        await world.add_pod("p", "one")
        await asyncio.sleep(8)
        assert (await world.pod("p")).status.resource_claim_statuses
        client.open.set()
        await world.settle()

        assert await world.node_of("p") == "a"
        assert await world.events_on("p") == []

    play(scenario)


def test_a_pod_that_runs_is_not_said_to_wait(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        (mirror,) = [one for one in await world.mirrors() if one.status.allocation is not None]
        name = mirror.metadata.name
        await world.client.patch(BUILTIN_CLAIMS, name, {"metadata": {"finalizers": None}}, "default")
        await delete_claim_of(world, "has")
        await world.settle()

        assert (await world.scheduling("has")).status.waiting_for == ""
        assert await world.events_on("has") == []

    play(scenario)
