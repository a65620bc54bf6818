"""The controller is killed at every write of a scenario, before and after the API server did it, and restarted.

Whatever it had in memory is lost. Always every pod that can run ends up bound once, every claim allocated
once, no device held twice at any moment, and nothing left over when the pods are gone.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.mirror import allocated, driver_of
from parley.kube.faults import Call, FaultClient
from parley.kube.reflector import Reflector

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


class Killed(BaseException):
    """The process is gone: no further call leaves it."""


class Executioner:
    """Kills the controller at its n-th write and has a new one started, as Kubernetes would."""

    def __init__(self, world: World, write: int, *, after: bool) -> None:
        self.world = world
        self.write = write
        self.after = after
        self.died = False
        self.client = FaultClient(world.server.client(), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        if self.write and call.write and call.write + (not self.after) > self.write:
            raise Killed

    def _after(self, call: Call) -> None:
        if self.write and self.after and call.write == self.write:
            raise Killed

    async def run(self) -> None:
        task = self.world.start_parley(self.client)
        self.world.killed.add(task)
        await asyncio.wait([task])
        self.died = True
        self.world.start_parley()


class Watcher:
    """Looks at every state that the API ever shows, and remembers what must never be."""

    def __init__(self, world: World) -> None:
        self.faults: list[str] = []
        self._claims: dict[str, BuiltinClaim] = {}
        self._reflector = Reflector(world.client, BUILTIN_CLAIMS, on_change=self._changed)
        self._pods = Reflector(world.client, PODS)
        self.tasks = [asyncio.create_task(part.run()) for part in (self._pods, self._reflector)]

    def _changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if old is not None:
            self._claims.pop(old.metadata.uid, None)
        if new is not None:
            self._claims[new.metadata.uid] = new
        held: dict[Any, str] = {}
        for claim in self._claims.values():
            for device in self._in_use(claim):
                if other := held.get(device):
                    self.faults.append(f"{device} is held by {other} and by {claim.metadata.name}")
                held[device] = claim.metadata.name

    def _in_use(self, claim: BuiltinClaim) -> tuple[Any, ...]:
        """What the claim holds, as long as a pod of its is there that has not ended."""
        if claim.status.allocation is None:
            return ()
        users = {user.uid for user in claim.status.reserved_for}
        alive = {p.metadata.uid for p in self._pods.values() if p.status.phase not in ("Succeeded", "Failed")}
        found = allocated(claim, driver_of(claim.status.allocation))
        return found.devices if found is not None and users & alive else ()

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


async def story(world: World) -> None:
    """Two claims for one pod, a named claim, the exact way, a pod that waits for another's devices."""
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_node("c", devices=1)
    await world.add_class()
    await world.add_class("exact", placement="Exact")
    await world.add_template()
    await world.add_template("offered", "exact")
    await world.add_claim("disk")
    await world.add_pod("two", "one", "one")
    await world.settle()
    await world.add_pod("named", claims=["disk"])
    await world.settle()
    await world.add_pod("exact", "offered")
    await world.settle()
    await world.add_pod("later", "one", "one")
    await world.settle()
    assert await world.node_of("later") == ""
    await world.delete_pod("two")
    await world.settle()


async def check(world: World) -> None:
    assert {name: bool(await world.node_of(name)) for name in ("named", "exact", "later")} == {
        "named": True,
        "exact": True,
        "later": True,
    }
    assert all(count == 1 for count in (await world.devices()).values())
    assert sum((await world.devices()).values()) == 4
    for name in ("named", "exact", "later"):
        assert (await world.scheduling(name)).spec.selected_node == await world.node_of(name)
        await world.delete_pod(name)
    await world.settle()
    await world.client.delete(CLAIMS, "disk", "default")
    await world.settle()
    assert not await world.mirrors()
    assert not (await world.client.list(CLAIMS)).items
    assert world.controller is not None
    assert len(world.controller.ledger) == 0


async def killed_at(world: World, write: int, *, after: bool) -> int:
    executioner = Executioner(world, write, after=after)
    watcher = Watcher(world)
    running = asyncio.create_task(executioner.run())
    await story(world)
    await check(world)
    running.cancel()
    watcher.stop()
    assert watcher.faults == []
    assert executioner.died == bool(write)
    return executioner.client.writes


def count_writes(play: Play) -> int:
    counted: list[int] = []

    async def scenario(world: World) -> None:
        counted.append(await killed_at(world, 0, after=False))

    play(scenario)
    return counted[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, after: bool) -> None:
    writes = count_writes(play)
    assert writes > 20
    for write in range(1, writes + 1):

        async def scenario(world: World, write: int = write) -> None:
            try:
                await killed_at(world, write, after=after)
            except BaseException as error:
                raise AssertionError(
                    f"killed {'after' if after else 'before'} write {write} of {writes}"
                ) from error

        play(scenario)
