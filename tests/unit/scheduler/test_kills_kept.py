"""The controller is killed at every write of a scenario with kept claims, before and after the server did it.

What a pod ran with stays where it was until its deadline, and is free in the end. No device is held twice at any
moment.
"""

import asyncio

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play, Watch, killed_at_every_write

from parley.api.models import Allocation
from parley.api.resources import CLAIMS

KEEP = 3600


async def allocation(world: World, claim: str) -> Allocation | None:
    return (await world.claim(claim)).status.allocation


async def story(world: World) -> None:
    """Two claims are used by one pod after the other; a third is shared, and deleted while it is kept."""
    await world.add_node("a", devices=2)
    await world.add_node("b", devices=2)
    await world.add_class(whenUnused={"keepSeconds": KEEP})
    await world.add_class("common", shareable=True, whenUnused={"keepSeconds": KEEP})
    for claim, class_ in (("mine", "gpu"), ("gone", "common"), ("forced", "gpu")):
        await world.add_claim(claim, class_)
    await world.add_pod("first", claims=["mine"])
    await world.add_pod("left", claims=["gone"])
    await world.add_pod("right", claims=["gone"])
    await world.add_pod("killed", claims=["forced"])
    await world.settle()
    before = {name: await allocation(world, name) for name in ("mine", "gone", "forced")}
    for pod in ("first", "left"):
        await world.finish_pod(pod)
    await world.delete_pod("right")
    await world.force_delete("killed")
    await world.settle()
    assert {name: await allocation(world, name) for name in before} == before
    await world.client.delete(CLAIMS, "gone", "default")
    await world.add_pod("second", claims=["mine"])
    await world.settle()
    assert await world.node_of("second")
    await world.delete_pod("second")
    await world.settle()
    assert {name: await allocation(world, name) for name in ("mine", "forced")} == {
        "mine": before["mine"],
        "forced": before["forced"],
    }


async def end(world: World) -> None:
    await asyncio.sleep(KEEP)
    await world.settle()
    claims = {claim.metadata.name: claim.status for claim in (await world.client.list(CLAIMS)).items}
    assert sorted(claims) == ["forced", "mine"]
    assert all(status.allocation is None and status.kept_until is None for status in claims.values())
    assert len(world.ledger) == 0
    assert not await world.devices()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_keeps_what_is_kept_and_frees_the_rest(
    play: Play, watcher: Watch, after: bool
) -> None:
    killed_at_every_write(play, watcher, story, end, after=after, at_least=20)
