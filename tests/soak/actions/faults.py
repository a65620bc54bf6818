"""Processes are killed, stopped and disconnected, their wall clocks are set, and their watches fall behind."""

from collections.abc import Sequence
from typing import Any

from tests.soak.cluster.leased import MOST_SKEW, LeasedProcess
from tests.soak.cluster.world import World

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, POD_SCHEDULINGS, PODS, Resource

HELD_KINDS: Sequence[Resource[Any]] = (PODS, PODS, BUILTIN_CLAIMS, BUILTIN_CLAIMS, CLAIMS, NODES, POD_SCHEDULINGS)
"""Kinds whose watches may be far behind. Not classes: an old state of these decides who is evicted."""


class Faults:
    """Acts on the processes of Parley, and on the schedulers and the claim controller."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._server = world.server
        self._chance = world.chance

    def _some_process(self) -> LeasedProcess | None:
        found = self._world.all_processes
        return self._chance.choice(found) if found else None

    async def kill(self) -> None:
        """A process of Parley's is killed, or shut down cleanly."""
        if (process := self._some_process()) is not None:
            await self._world.restart(process, self._chance.uniform(0, 3), clean=self._chance.random() < 0.3)

    async def kill_driver(self) -> None:
        """A standalone driver is killed, or shut down cleanly."""
        if self._world.standalone:
            process = self._chance.choice(self._world.standalone)
            await self._world.restart(process, self._chance.uniform(0, 3), clean=self._chance.random() < 0.3)

    async def restart_part(self) -> None:
        """A scheduler or the claim controller is killed, or replaced by another one."""
        await self._world.parts.restart(self._chance.choice(self._world.parts.restartable))

    async def kill_preempting(self) -> None:
        """The leader is killed while it keeps a node for a preemptor."""
        leader = self._world.leader
        if leader is not None and leader.nominations:
            await self._world.restart(leader, self._chance.uniform(0, 3))

    def outage(self) -> None:
        """One process is disconnected from the API server, or all are."""
        seconds = self._chance.uniform(0.1, 60)
        cut = self._world.all_processes if self._chance.random() < 0.5 else [self._some_process()]
        for process in cut:
            if process is not None:
                self._server.note(f"{process.name} is cut off for {seconds:.1f} s")
                process.client.blackout(seconds)

    def stop(self) -> None:
        """A process is stopped as by SIGSTOP, and goes on a while later."""
        if (process := self._some_process()) is not None:
            seconds = self._chance.uniform(0.1, 50)
            self._server.note(f"{process.name} is stopped for {seconds:.1f} s")
            self._world.loop.stop_process(process.name)
            self._world.loop.call_later(seconds, self._world.loop.continue_process, process.name)

    def set_wall_clock(self) -> None:
        """A process's wall clock is set: ahead, behind or right. Its monotonic clock goes on."""
        if (process := self._some_process()) is not None:
            process.skew = self._chance.choice((0.0, 0.0, self._chance.uniform(-MOST_SKEW, MOST_SKEW)))
            self._server.note(f"the clock of {process.name} is {process.skew:.1f} s ahead")

    def hold_watches(self) -> None:
        """A process gets no changes of one kind for a while; its other watches go on."""
        if (process := self._some_process()) is not None:
            kind, seconds = self._chance.choice(HELD_KINDS), self._chance.uniform(1, 120)
            self._server.note(f"{process.name} sees no change of {kind.plural} for {seconds:.1f} s")
            process.client.hold(kind, seconds)
