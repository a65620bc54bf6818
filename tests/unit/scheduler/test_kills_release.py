"""The controller is killed at every write while it waits for receipts of forced deletions, and restarted.

Nothing is handed on that a node still has prepared, and in the end everything is. Two things happen without a dead
controller's knowledge: a generated claim is collected before its record was made, and nobody knows of it any more
(the node plugin refuses what it has prepared for another claim); and the scheduler lets the next pod into a named
claim, on the same node, when the claim controller has taken out the one that is gone.
"""

import asyncio

import pytest
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.killed import Play

from parley.api.builtin import BuiltinClaim
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.control.objects.mirror import allocated, driver_of
from parley.kube.informer import Informer
from parley.sdk import Device

SLOW = "tests.parley.dev/slow-collector"


class Prepared:
    """Notes when an allocation shows a device that a node has prepared for another claim."""

    def __init__(self, world: World) -> None:
        self.faults: list[str] = []
        self._world = world
        self._devices: dict[str, tuple[Device, ...]] = {}
        self.task = asyncio.create_task(Informer(world.client, BUILTIN_CLAIMS, on_change=self._changed).run())

    def _changed(self, _old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if new is None or new.status.allocation is None:
            return
        found = allocated(new, driver_of(new.status.allocation))
        self._devices[new.metadata.uid] = mine = found.devices if found is not None else ()
        for node, uid in self._world.kubelets.prepared:
            if uid != new.metadata.uid and set(self._devices.get(uid, ())) & set(mine):
                self.faults.append(f"{new.metadata.name} got what node {node} has prepared for {uid}")


async def hold(world: World) -> None:
    """The garbage collector does not get at generated claims for now."""
    for mirror in await world.mirrors():
        body = {"metadata": {"finalizers": [*mirror.metadata.finalizers, SLOW]}}
        await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, "default")


async def let_go(world: World) -> None:
    for mirror in await world.mirrors():
        left = [name for name in mirror.metadata.finalizers if name != SLOW]
        body = {"metadata": {"finalizers": left or None}}
        await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, "default")


async def story(world: World, *, slow: bool) -> None:
    """Node a does nothing while pods are deleted by force there, node b is out of service."""
    await world.add_node("a", devices=2)
    await world.add_class()
    await world.add_template()
    await world.add_claim("disk")
    await world.add_pod("generated", "one")
    await world.add_pod("named", claims=["disk"])
    await world.settle()
    await world.add_node("b", devices=1)
    await world.add_pod("elsewhere", "one")
    await world.settle()
    assert await world.node_of("elsewhere") == "b"
    if slow:
        await hold(world)
    for node in ("a", "b"):
        world.kubelets.stop(node)
    for name in ("generated", "named", "elsewhere"):
        await world.force_delete(name)
    await world.add_pod("next", claims=["disk"])
    await world.add_pod("later", "one")
    await world.settle()
    if slow:
        assert await world.node_of("later") == ""
        await let_go(world)
        await world.settle()
    await world.taint("b", OUT_OF_SERVICE_TAINT, "NoSchedule")
    world.kubelets.start("a")
    await world.settle()
    assert await world.node_of("next") == "a"
    assert await world.node_of("later")


async def check(world: World) -> None:
    assert all(count == 1 for count in (await world.devices()).values())
    world.kubelets.start("b")
    for name in ("next", "later"):
        await world.delete_pod(name)
    await world.settle()
    await world.client.delete(CLAIMS, "disk", "default")
    await world.settle()
    await nothing_is_left(world)


@pytest.mark.parametrize("slow", [False, True], ids=["collected", "still-there"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_hands_nothing_on_too_early_and_everything_in_the_end(
    play: Play, after: bool, slow: bool
) -> None:
    async def life(world: World, death: Death) -> int:
        watching = Prepared(world)
        async with Executioner(world, world.start_parley, death) as executioner:
            await story(world, slow=slow)
            await check(world)
        watching.task.cancel()
        assert watching.faults == [] or not slow
        return executioner.writes

    at_every_write(play, life, after=after, at_least=21)
