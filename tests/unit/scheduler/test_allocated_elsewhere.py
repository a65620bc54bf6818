"""Standalone drivers that allocate elsewhere than on the selected node, against the protocol."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks, disks_are_free, prepare

from parley.api.resources import CLAIMS
from parley.sdk import Allocation, NoParameters, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

_TEN_MINUTES = 600.0


class Astray(Disks):
    """Says of each disk that it is on a node which does not exist, as long as it is `astray`."""

    astray = True

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        on = ("elsewhere",) if self.astray else ()
        return {name: Allocation(data=one.data, available_on=on) for name, one in found.items()}


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize(
    ("templates", "named", "on"),
    [(["disk"], [], ""), (["disk", "one"], [], ""), ([], ["mine"], ""), (["disk"], [], "a")],
    ids=["generated", "beside another driver's", "named", "bound"],
)
def test_its_pod_is_told_and_tried_again_after_growing_pauses(
    play: Any, templates: Sequence[str], named: Sequence[str], on: str
) -> None:
    async def scenario(world: World) -> None:
        disks = Astray(["a", "b"])
        await prepare(world, disks, nodes="ab")
        for name in named:
            await world.add_claim(name, "disk")
        before = world.server.resource_version
        await world.add_pod("p", *templates, claims=named, **({"nodeName": on} if on else {}))
        await asyncio.sleep(_TEN_MINUTES)
        assert len(disks.tried) <= 16
        assert world.server.resource_version - before < 300
        assert await world.node_of("p") == on
        status = (await world.scheduling("p")).status
        assert status.waiting_for == "AllocationFailed"
        names = [mirror.metadata.name for mirror in await world.mirrors()]
        (claim,) = named or [name for name in names if "gpu-0" in name]
        found = f"driver {disks.name}: claim default/{claim} is allocated on node elsewhere"
        assert status.message in [f"could not allocate on node {node}: {found}" for node in "ab"]
        assert "AllocationFailed" in {reason for reason, _ in await world.events_on("p")}

        disks.astray = False
        await world.settle(700)
        assert await world.node_of("p") in ("a", "b")
        assert (await world.scheduling("p")).status.waiting_for == ""
        assert set(disks.held.values()) == {await world.node_of("p")}
        await world.delete_pod("p")
        for name in named:
            await world.client.delete(CLAIMS, name, "default")
        await world.settle()
        await disks_are_free(world, disks)

    play(scenario)
