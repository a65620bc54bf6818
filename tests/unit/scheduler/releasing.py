"""The setup of tests of ClaimReleases: one device, and a pod deleted by force while its node does nothing."""

from typing import Any

from tests.unit.scheduler.conftest import World

from parley.api.models import ClaimRelease
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES

SHUT_DOWN = (OUT_OF_SERVICE_TAINT, "NoExecute")


async def one_device(world: World, **class_: Any) -> None:
    """Start Parley; node a has the only device, so a pod that gets a claim runs there."""
    world.start_parley()
    await world.add_node("a", devices=1)
    await world.add_node("b")
    await world.add_class(**class_)
    await world.add_template()


async def lost(world: World, *, claims: tuple[str, ...] = ()) -> None:
    """Pod "old" was deleted by force while its node did nothing; pod "new" needs the same device."""
    templates = () if claims else ("one",)
    await world.add_pod("old", *templates, claims=claims)
    await world.settle()
    assert (await world.pod("old")).status.phase == "Running"
    world.kubelets.stop("a")
    await world.force_delete("old")
    await world.add_pod("new", *templates, claims=claims)
    await world.settle()


async def records(world: World) -> list[ClaimRelease]:
    """All ClaimReleases, sorted by node."""
    return sorted((await world.client.list(CLAIM_RELEASES)).items, key=lambda release: release.spec.node_name)


async def restart(world: World) -> None:
    """Kill the controller and start another one."""
    await world.crash()
    world.start_parley()
    await world.settle()


async def handed_on(world: World) -> None:
    """Pod "new" runs with the device, and no ClaimRelease is left."""
    assert await world.node_of("new") == "a"
    assert (await world.pod("new")).status.phase == "Running"
    assert await records(world) == []
    assert set((await world.devices()).values()) == {1}
