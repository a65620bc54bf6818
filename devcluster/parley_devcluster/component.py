"""A program of a cluster: starting, stopping and killing it, and whether it is healthy.

Its command is a value made elsewhere; the process it became is recorded in the cluster's state the moment it
exists.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from parley_devcluster import processes
from parley_devcluster.control_plane import Command
from parley_devcluster.processes import MARK, ProcessIdentity

Answers = Callable[[str], bool]

_READY_LIMIT = 90.0  # seconds, enough for a busy machine
_STOP_LIMIT = 10.0
_PAUSE = 0.1
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")  # kubelets' addresses are not behind a proxy
_SHOWN = 15  # log lines in an error


class ComponentFailed(RuntimeError):
    """A component exited or did not become ready; the message shows its last log lines."""


class Component:
    """A program of the cluster. Its log file has the component's name."""

    def __init__(
        self,
        command: Command,
        directory: Path,
        log: Path,
        answers: Answers,
        record: Callable[[str, ProcessIdentity | None], None],
        process: ProcessIdentity | None = None,
    ) -> None:
        self._command = command
        self._directory = directory
        self._answers = answers
        self._record = record
        self._process = process
        self._changing = threading.Lock()
        self.log = log

    @property
    def name(self) -> str:
        """The component's name."""
        return self._command.name

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return self._command.argv

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the recorded process runs."""
        return self._process is not None and processes.alive(self._process)

    def start(self, limit: float = _READY_LIMIT) -> None:
        """Start it and wait until it is healthy; raises `ComponentFailed` if it exits or exceeds `limit`
        seconds."""
        self.launch()
        self.wait_ready(limit)

    def launch(self) -> None:
        """Start it without waiting; does nothing if it runs. Another thread may end it at the same time."""
        with self._changing:
            if not self.running:
                self._launch()

    def _launch(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
        environment = {**inherited, **self._command.environment, MARK: str(self._directory)}
        try:
            self._process = processes.spawn(self._command.argv, environment, self.log)
        except OSError as error:
            raise ComponentFailed(
                f"{self.name}: {self._command.argv[0]} cannot be started: {error.strerror}"
            ) from error
        self._record(self.name, self._process)

    def wait_ready(self, limit: float = _READY_LIMIT) -> None:
        """Wait until it is healthy; without a health check it only has to run."""
        deadline = time.monotonic() + limit
        while not self._serves():
            if not self.running:
                raise ComponentFailed(f"{self.name} ended early; the end of {self.log}:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ComponentFailed(
                    f"{self.name} did not become ready within {limit:.0f} s ({self._command.health});"
                    f" the end of {self.log}:\n{self.last_lines()}"
                )
            time.sleep(_PAUSE)

    def stop(self, limit: float = _STOP_LIMIT) -> None:
        """Terminate it; kill it if it still runs after `limit` seconds."""
        self._end(lambda process: processes.end(process, limit))

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._end(processes.kill)

    def last_lines(self, count: int = _SHOWN) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return "(there is no log)"

    def _end(self, ending: Callable[[ProcessIdentity], object]) -> None:
        ended = self._process
        if ended is None:
            return
        ending(ended)
        with self._changing:
            if self._process == ended:  # not one that was launched since
                self._process = None
                self._record(self.name, None)

    def _serves(self) -> bool:
        health = self._command.health
        if health is None:
            return self.running
        return listening(Path(health)) if health.startswith("/") else self._answers(health)


def listening(path: Path) -> bool:
    """Whether a process accepts connections on that unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True
