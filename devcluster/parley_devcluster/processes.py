"""Starts, finds and ends processes, each known by its id and start time, so that no foreign process is ever
signalled.

Every process of a cluster carries the cluster's directory in its environment. A child that was started but
not recorded, and what a container runtime started on its own, are found by that.
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
    """One process, never another that was given the same id later."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/<pid>/stat."""


def boot_id() -> str:
    """Differs after a restart of the machine, when ids and start times mean nothing any more."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this id now; None where there is none or only its exit status is left."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
    return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]))


def alive(process: ProcessIdentity) -> bool:
    """Whether that very process still runs, not another that was given its number."""
    return identify(process.pid) == process


def spawn(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> ProcessIdentity:
    """Start a program in a session of its own, its output appended to the log; it outlives this process.

    Raises `OSError` where the program cannot be started.
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
    """Ask the process to end and wait up to `limit` seconds, then kill it; whether it had to be killed."""
    return _signal(process, signal.SIGTERM, limit) is False and _signal(process, signal.SIGKILL, limit) is not None


def kill(process: ProcessIdentity, limit: float = 10.0) -> None:
    """Kill the process and wait until it is gone, at most `limit` seconds."""
    _signal(process, signal.SIGKILL, limit)


def marked(directory: Path) -> list[ProcessIdentity]:
    """Every process of the cluster in that directory, recorded or not; containers' own processes carry no mark."""
    wanted = f"{MARK}={directory}".encode()
    return [process for process in every() if wanted in _environment(process.pid)]


def every() -> list[ProcessIdentity]:
    """All processes of the machine that can be seen from here."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := identify(pid)) is not None]


def program(process: ProcessIdentity) -> str:
    """The name of the program that the process runs, cut to 15 characters; empty where it is gone."""
    try:
        return (_PROC / str(process.pid) / "comm").read_text().strip()
    except OSError:
        return ""


def unmarked(name: str) -> list[int]:
    """The ids of processes of that name that belong to no development cluster and share this machine's folders.

    Those in containers, as kind's kubelets are, have folders of their own.
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
    """None where the process was gone already, else whether it ended within the limit.

    A process descriptor stays with its process: compared once after it is opened, it can reach no other.
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
    """Take the exit status of a child; another's child is its parent's."""
    try:
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        pass


def _in_container(pid: int) -> bool:
    """Whether the process has mounts of its own; one that can't be looked at is taken to have none."""
    try:
        return (_PROC / str(pid) / "ns/mnt").readlink() != (_PROC / "self/ns/mnt").readlink()
    except OSError:
        return False


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
