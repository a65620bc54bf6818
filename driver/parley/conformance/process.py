"""The driver's process: started by a shell command, and killed without warning."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_SHOWN = 4000
"""Bytes of the end of the process's output."""


class DriverProcess(Protocol):
    """A driver that can be killed and started again."""

    async def start(self) -> None:
        """Start it; returns at once."""
        ...

    async def kill(self) -> None:
        """End it without warning, as after a power cut."""
        ...


class CommandDriver:
    """A driver as a shell command, with $KUBECONFIG and $API_SERVER; what it prints goes to a file."""

    def __init__(self, command: str, environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the command in its own process group, so that its children end with it."""
        with self._log.open("wb") as output:
            self._process = await asyncio.create_subprocess_shell(
                self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """Send SIGKILL to the process group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

    @property
    def ended(self) -> int | None:
        """The exit status, if the process ended by itself."""
        return self._process.returncode if self._process is not None else None

    def output(self) -> str:
        """The end of the process's output."""
        return self._log.read_bytes()[-_SHOWN:].decode(errors="replace") if self._log.exists() else ""
