"""Starts, finds and ends processes. Each is identified by its id and start time, so that no other process is ever
signalled.

Every process of a cluster has the cluster's directory in its environment. This identifies children that were
started but not recorded, and processes that a container runtime started itself.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "PARLEY_DEVCLUSTER"
"""The environment variable that names the cluster's directory."""

_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies one process, and no later one with the same id."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/<pid>/stat."""


def boot_id() -> str:
    """The id of this boot: process ids and start times of another boot are meaningless."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this id now; None if there is none, or only its exit status is left."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may contain spaces and parentheses
    return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]))


def alive(process: ProcessIdentity) -> bool:
    """Whether this process still runs, and not another one with its id."""
    return identify(process.pid) == process


def spawn(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> ProcessIdentity:
    """Start a program in a session of its own and append its output to the log; it outlives this process.

    Raises `OSError` if the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )
    return identify(pid) or ProcessIdentity(pid, -1)


def end(process: ProcessIdentity, limit: float) -> bool:
    """Terminate the process, and kill it after `limit` seconds. Returns whether it had to be killed."""
    return _signal(process, signal.SIGTERM, limit) is False and _signal(process, signal.SIGKILL, limit) is not None


def kill(process: ProcessIdentity, limit: float = 10.0) -> None:
    """Kill the process and wait until it is gone, at most `limit` seconds."""
    _signal(process, signal.SIGKILL, limit)


def marked(directory: Path) -> list[ProcessIdentity]:
    """All processes of the cluster in that directory, recorded or not, except those in containers, which lack the
    variable."""
    wanted = f"{MARK}={directory}".encode()
    return [process for process in every() if wanted in _environment(process.pid)]


def every() -> list[ProcessIdentity]:
    """All processes that are visible in /proc."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := identify(pid)) is not None]


def program(process: ProcessIdentity) -> str:
    """The name of the process's program, cut to 15 characters; empty if the process is gone."""
    try:
        return (_PROC / str(process.pid) / "comm").read_text().strip()
    except OSError:
        return ""


def unmarked(name: str) -> list[int]:
    """The ids of processes of that name that belong to no development cluster and share this machine's folders.

    Processes in containers, such as kind's kubelets, have their own folders.
    """
    prefix = f"{MARK}=".encode()
    return [
        process.pid
        for process in every()
        if program(process) == name
        and not any(entry.startswith(prefix) for entry in _environment(process.pid))
        and not _in_container(process.pid)
    ]


def _signal(process: ProcessIdentity, number: signal.Signals, limit: float) -> bool | None:
    """Signal the process and wait for its end. Returns None if it was gone already, else whether it ended in time.

    A process descriptor always refers to the same process, so its identity is compared only once, after opening
    it.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    try:
        if not alive(process):
            _reap(descriptor)
            return None
        signal.pidfd_send_signal(descriptor, number)
        return _wait(descriptor, limit)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)


def _wait(descriptor: int, limit: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(limit * 1000):
        return False
    _reap(descriptor)
    return True


def _reap(descriptor: int) -> None:
    """Reap the process if it is a child of this one."""
    try:
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        pass


def _in_container(pid: int) -> bool:
    """Whether the process has its own mount namespace; False if that can't be read."""
    try:
        return (_PROC / str(pid) / "ns/mnt").readlink() != (_PROC / "self/ns/mnt").readlink()
    except OSError:
        return False


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
