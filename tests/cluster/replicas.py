"""Programs of one kind that compete for one lease, as the replicas of a deployment do.

Whichever of them ends, is started again, as a kubelet does it; on a machine that has too much to do, a leader may
lose its lease at any time.
"""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.cluster.programs import Program
from tests.cluster.watching import LIMIT

from parley_devcluster import Cluster

BRIEF = 8
"""Seconds of a lease: a leader of which nothing is heard gives up after five of them."""

_UNLIMITED = 3600.0
_PAUSE = 0.05


class Replicas:
    """`parley <command>` any number of times, with a lease that nobody else has; `ready` is the event that a
    leader logs when it begins to act.

    None runs at first, and none any more when the block ends. `lease_seconds` is shorter than usual, so that
    tests of what a leader's end brings about wait less; `None` leaves it as users have it.
    """

    def __init__(
        self,
        cluster: Cluster,
        account: Path,
        command: Sequence[str],
        ready: str,
        *,
        lease_seconds: int | None = BRIEF,
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._command = command
        self._ready = ready
        self.lease_seconds = lease_seconds
        self._lease = f"lease-{uuid.uuid4().hex[:6]}"
        self._keeping: list[asyncio.Task[None]] = []
        self.programs: list[Program] = []
        """All that ever ran."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, kubeconfig: Path | None = None) -> Program:
        """One more. It may not lead yet when this returns."""
        program = await self._launch(kubeconfig)
        self._keeping.append(asyncio.create_task(self._keep(program, kubeconfig)))
        return program

    async def lead(self, kubeconfig: Path | None = None) -> Program:
        """The first one, when it acts."""
        earlier = tuple(self.programs)
        await self.start(kubeconfig)
        return await self._acting(earlier)

    async def next_leader(self, than: Program) -> Program:
        """Whichever of the others acts first, those that are still to be started included."""
        return await self._acting((than,))

    async def _acting(self, apart_from: Sequence[Program]) -> Program:
        """The first one, those included that are started because one has lost its lease."""
        async with asyncio.timeout(LIMIT):
            while True:
                for program in self.programs:
                    if program not in apart_from and program.running and program.has_said(self._ready):
                        return program
                await asyncio.sleep(_PAUSE)

    async def follow(self) -> Program:
        """End all of them; returns a new one that acts, with nothing but what the API server tells it."""
        keeping, self._keeping = self._keeping, []
        earlier = tuple(self.programs)
        await self.start()
        await _cancel(keeping)
        await asyncio.gather(*(program.stop() for program in earlier))
        return await self._acting(earlier)

    async def kill(self) -> None:
        """End all of them without a chance to tidy up; none is started again."""
        await self._dismiss()
        await asyncio.gather(*(program.kill() for program in self.programs))

    async def stop(self) -> None:
        """End all of them, those that stand still too; what they said last is shown where a test fails."""
        try:
            await self._dismiss()
        finally:
            for program in self.programs:
                print(f"{program.name} said last:\n{program.last_lines()}")
                program.thaw()
            await asyncio.gather(*(program.stop() for program in self.programs))

    async def _launch(self, kubeconfig: Path | None) -> Program:
        name = f"{self._lease}-{len(self.programs)}"
        options = ["--kubeconfig", str(kubeconfig or self._account), "--lease-name", self._lease]
        if self.lease_seconds is not None:
            options += ["--lease-duration", str(self.lease_seconds)]
        program = await Program.start(self._cluster, name, *self._command, *options, "--identity", name)
        self.programs.append(program)
        await program.said("started")
        return program

    async def _keep(self, program: Program, kubeconfig: Path | None) -> None:
        while True:
            await program.ended(within=_UNLIMITED)
            program = await self._launch(kubeconfig)

    async def _dismiss(self) -> None:
        keeping, self._keeping = self._keeping, []
        await _cancel(keeping)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raises what one of them ended with before."""
    for task in tasks:
        task.cancel()
    for ending in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ending, asyncio.CancelledError):
            raise AssertionError("a program that ended could not be started again") from ending
