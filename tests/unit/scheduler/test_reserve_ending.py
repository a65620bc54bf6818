"""Until when a claim that ends reserves its room, if it leaves data on its node."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import begin, borrower, claim, disks, task

from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Call, ServerError

Play = Callable[[Callable[[World], Any]], None]


pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_the_room_is_free_when_a_node_that_has_confirmed_a_forced_deletion_has_yet_to_remove_data(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.client.patch(CLASSES, "workspace", {"whenUnused": None})
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        world.kubelets.stop("a")
        await world.force_delete("clone")
        assert await borrower(world, "late", cpu="6") == ""
        (receipt,) = (await world.client.list(CLAIM_RELEASES)).items
        await world.client.delete(CLAIM_RELEASES, receipt.metadata.name)
        await world.settle()
        assert [release.spec.remove_data for release in (await world.client.list(CLAIM_RELEASES)).items] == [True]
        assert await world.node_of("late") == "a"

    play(scenario)


def test_a_claim_with_data_reserves_room_until_the_api_shows_that_it_has_ended(play: Play) -> None:
    """A new controller would read its record, and count it."""

    async def scenario(world: World) -> None:
        failing = True

        def no_releases(call: Call) -> None:
            if failing and call.resource is CLAIM_RELEASES and call.verb == "create":
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

        await disks(world, "a")
        world.start_parley(FaultClient(world.server.client(), before=no_releases), drivers=[WorkspaceDriver()])
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        await world.finish_pod("clone")
        await world.settle()
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await claim(world, "next", {"cpu": "6"}, "Immediate")
        await asyncio.sleep(20)
        assert (await world.claim("build")).status.allocation is not None
        assert (await world.claim("next")).status.allocation is None
        failing = False
        await asyncio.sleep(60)
        assert (await world.claim("next")).status.allocation is not None

    play(scenario)
