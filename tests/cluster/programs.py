"""Parley's programs as child processes, whose log is followed while they run and kept in a file.

They carry the mark of the cluster that they work for, so that taking it down ends what a test left behind.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import orjson
from tests.cluster.watching import LIMIT

from parley_devcluster import Cluster
from parley_devcluster.processes import MARK

_LONGEST_LINE = 1 << 24

Entry = Mapping[str, Any]
"""A log entry; a line that is none has itself as `event`."""


class Program:
    """`parley <arguments>`, started with `Program.start` and followed until it ends."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.entries: list[Entry] = []
        """The log so far."""
        self._process = process
        self._log = log
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, cluster: Cluster, name: str, *arguments: str) -> Self:
        """The program; its log goes to a file of that name beside those of the cluster's components."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "parley", *arguments, "--log-format", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            env={**os.environ, MARK: str(cluster.directory)},
        )
        return cls(name, process, cluster.component("kube-apiserver").log.with_name(f"{name}.log"))

    async def _read(self) -> None:
        assert self._process.stderr is not None
        with self._log.open("ab") as file:
            async for line in self._process.stderr:
                file.write(line)
                async with self._changed:
                    self.entries.append(_entry(line))
                    self._changed.notify_all()
        await self._process.wait()
        async with self._changed:
            self._changed.notify_all()

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return not self._reading.done()

    async def said(self, event: str, *, within: float = LIMIT) -> Entry:
        """The first entry of that event, as soon as there is one. Fails if the program ends without."""

        def found() -> Entry | None:
            return next((entry for entry in self.entries if entry["event"] == event), None)

        await self._until(lambda: found() is not None or self._process.returncode is not None, event, within)
        said = found()
        assert said is not None, f"{self.name} ended without saying {event!r}:\n{self.last_lines()}"
        return said

    def has_said(self, event: str) -> bool:
        """Whether there is an entry of that event so far."""
        return any(entry["event"] == event for entry in self.entries)

    async def ended(self, *, within: float = LIMIT) -> int:
        """Its exit code, as soon as it has ended."""
        async with asyncio.timeout(within):
            await asyncio.shield(self._reading)
        assert self._process.returncode is not None
        return self._process.returncode

    async def _until(self, holds: Callable[[], bool], what: str, within: float) -> None:
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(holds)
        except TimeoutError:
            raise AssertionError(f"{self.name}, not within {within:g} s: {what}:\n{self.last_lines()}") from None

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        return "\n".join(str(dict(entry)) for entry in self.entries[-count:])

    def freeze(self) -> None:
        """Let it stand still, as a paused machine does, until `thaw`."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on where it stands."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it without a chance to tidy up."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def stop(self) -> int:
        """Ask it to end; returns its exit code."""
        if self._process.returncode is None:
            self._process.terminate()
        return await self.ended()


def _entry(line: bytes) -> Entry:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        entry = None
    return entry if isinstance(entry, dict) and "event" in entry else {"event": line.decode().rstrip()}
