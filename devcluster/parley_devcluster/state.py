"""The record of a running cluster in `state.json`, with which any later process can find it and take it down.

The layout, from which the names of bridges, cgroups and mounts follow, is written before any of them exists;
each process is recorded right after its start.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley_devcluster import layout as layouts
from parley_devcluster.control_plane import Command
from parley_devcluster.layout import Layout
from parley_devcluster.processes import ProcessIdentity, boot_id

FILE = "state.json"


class StateError(RuntimeError):
    """A state file that this version cannot read."""


@dataclass(frozen=True)
class ClusterState:
    """A recorded cluster: its layout, its processes by component name, and the programs added to it."""

    layout: Layout
    boot: str
    processes: dict[str, ProcessIdentity] = field(default_factory=dict)
    programs: tuple[Command, ...] = ()

    def with_process(self, name: str, process: ProcessIdentity) -> ClusterState:
        """A copy in which the component runs as that process."""
        return replace(self, processes={**self.processes, name: process})

    def without_process(self, name: str) -> ClusterState:
        """A copy in which the component does not run."""
        return replace(self, processes={key: value for key, value in self.processes.items() if key != name})

    def with_program(self, program: Command) -> ClusterState:
        """A copy with this program, which replaces one of the same name."""
        others = tuple(command for command in self.programs if command.name != program.name)
        return replace(self, programs=(*others, program))


def read(directory: Path) -> ClusterState | None:
    """The recorded state; None if the directory has none. Raises `StateError` if it can't be read.

    Processes recorded before the last reboot are left out, because their ids are meaningless now.
    """
    path = directory / FILE
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        plain = json.loads(text)
        state = _load(plain)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{path} is not a state file of this version ({error!r}): end the processes that carry"
            f" PARLEY_DEVCLUSTER={directory} in their environment, then remove {directory}"
        ) from error
    return state if state.boot == boot_id() else replace(state, processes={})


def change(known: ClusterState, how: Callable[[ClusterState], ClusterState]) -> ClusterState:
    """Change the recorded state, or `known` if nothing is recorded, and return the new state. A lock excludes
    other threads and processes that attached to the cluster."""
    directory = known.layout.directory
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = how(read(directory) or known)
        write(changed)
    finally:
        os.close(lock)
    return changed


def write(state: ClusterState) -> None:
    """Record the state atomically."""
    directory = state.layout.directory
    partial = directory / f".{FILE}.partial"
    partial.write_text(json.dumps(_dump(state), indent=2))
    partial.rename(directory / FILE)


def forget(directory: Path) -> None:
    """Remove the record of a cluster that is down."""
    (directory / FILE).unlink(missing_ok=True)


def _dump(state: ClusterState) -> dict[str, Any]:
    return {
        "layout": layouts.dump(state.layout),
        "boot": state.boot,
        "processes": {name: [process.pid, process.started] for name, process in state.processes.items()},
        "programs": [
            {
                "name": program.name,
                "argv": list(program.argv),
                "health": program.health,
                "environment": dict(program.environment),
            }
            for program in state.programs
        ],
    }


def _load(plain: dict[str, Any]) -> ClusterState:
    return ClusterState(
        layouts.load(plain["layout"]),
        plain["boot"],
        {name: ProcessIdentity(pid, started) for name, (pid, started) in plain["processes"].items()},
        tuple(
            Command(program["name"], tuple(program["argv"]), program["health"], program["environment"])
            for program in plain["programs"]
        ),
    )
