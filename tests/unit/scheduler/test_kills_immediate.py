"""The controller is killed at every write of a scenario with immediate claims, before and after the server did it.

A new one starts with nothing in memory. What was allocated without a pod stays where it was, no device is held
twice at any moment, pods use the claims as if nothing had happened, and nothing is left when all is deleted.
"""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.killed import Play, Watch, killed_at_every_write

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS


async def story(world: World) -> None:
    """An exclusive claim that three pods want, a shared one, one that has to wait, one that is deleted in use."""
    await world.add_node("a", devices=2)
    await world.add_node("b", devices=1)
    await world.add_class()
    await world.add_class("common", shareable=True)
    await world.add_template()
    for claim in ("mine", "gone"):
        await world.add_claim(claim, mode="Immediate")
    await world.add_claim("ours", "common", mode="Immediate")
    await world.settle()
    await world.add_claim("late", mode="Immediate")
    for pod in ("first", "second", "third"):
        await world.add_pod(pod, claims=["mine"])
    await world.add_pod("last", claims=["gone"])
    await world.add_pod("left", claims=["ours"])
    await world.add_pod("right", claims=["ours"])
    await world.settle()
    assert await world.node_of("first")
    assert await world.node_of("second") == ""
    assert (await world.claim("late")).status.allocation is None
    before = (await world.claim("mine")).status.allocation
    await world.client.delete(CLAIMS, "gone", "default")
    await world.delete_pod("last")
    await world.delete_pod("left")
    await world.delete_pod("first")
    await world.settle()
    await world.finish_pod("second")
    await world.delete_pod("right")
    await world.client.delete(BUILTIN_CLAIMS, "late", "default")
    await world.settle()
    assert (await world.claim("mine")).status.allocation == before


async def check(world: World) -> None:
    claims = {claim.metadata.name: claim.status for claim in (await world.client.list(CLAIMS)).items}
    held = [h.devices for s in claims.values() if s.allocation is not None for h in s.allocation.handles]
    assert sorted(claims) == ["late", "mine", "ours"]
    assert len({(device.pool, device.device) for devices in held for device in devices}) == 3
    assert {name: [u.name for u in status.reserved_for] for name, status in claims.items()} == {
        "late": [],
        "mine": ["third"],
        "ours": [],
    }
    mine = claims["mine"].allocation
    assert mine is not None
    (handle,) = mine.handles
    assert await world.node_of("third") == handle.devices[0].pool
    assert await world.devices() == {(d.pool, d.device): 1 for d in handle.devices}
    await world.delete_pod("second")
    await world.delete_pod("third")
    for claim in claims:
        await world.client.delete(CLAIMS, claim, "default")
    await world.settle()
    await nothing_is_left(world)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, watcher: Watch, after: bool) -> None:
    killed_at_every_write(play, watcher, story, check, after=after, at_least=31)
