"""Programs of one kind that compete for one lease, as the replicas of a deployment do."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cluster.programs import Program

from parley.devcluster import Cluster

_UNLIMITED = 3600.0


class Replicas:
    """`parley <command>` any number of times, with a lease that nobody else has; `ready` is the event that a
    leader logs when it begins to act."""

    def __init__(self, cluster: Cluster, account: Path, command: Sequence[str], ready: str) -> None:
        self._cluster = cluster
        self._account = account
        self._command = command
        self._ready = ready
        self._lease = f"lease-{uuid.uuid4().hex[:6]}"
        self.programs: list[Program] = []

    async def start(self, kubeconfig: Path | None = None) -> Program:
        """One more. It may not lead yet when this returns."""
        name = f"{self._lease}-{len(self.programs)}"
        options = ("--kubeconfig", str(kubeconfig or self._account), "--lease-name", self._lease)
        program = await Program.start(self._cluster, name, *self._command, *options, "--identity", name)
        self.programs.append(program)
        await program.said("started")
        return program

    async def lead(self, kubeconfig: Path | None = None) -> Program:
        """The first one, when it acts."""
        program = await self.start(kubeconfig)
        await program.said(self._ready)
        return program

    @asynccontextmanager
    async def kept_running(self, kubeconfig: Path | None = None) -> AsyncGenerator[None, None]:
        """Within the block, for each one that ends another one is started, as a kubelet does."""

        async def replace(program: Program) -> None:
            while True:
                await program.ended(within=_UNLIMITED)
                program = await self.start(kubeconfig)

        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(replace(program)) for program in self.programs if program.running]
            yield
            for task in following:
                task.cancel()

    async def follow(self) -> Program:
        """End all of them; returns a new one that acts, with nothing but what the API server tells it."""
        fresh = await self.start()
        await asyncio.gather(*(program.stop() for program in self.programs if program is not fresh))
        await fresh.said(self._ready)
        return fresh

    async def stop(self) -> None:
        """End all of them, those that stand still too; what they said last is shown where a test fails."""
        for program in self.programs:
            print(f"{program.name} said last:\n{program.last_lines()}")
            program.thaw()
        await asyncio.gather(*(program.stop() for program in self.programs))
