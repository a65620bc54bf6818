"""CPU time and memory of processes, from /proc."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MEGABYTE = 1024.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process, by name and by its entry in /proc: the id, or "self"."""

    name: str
    pid: str


def cpu_seconds(process: Process) -> float:
    """User and system time so far."""
    text = (Path("/proc") / process.pid / "stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
    return (int(fields[11]) + int(fields[12])) / _TICKS


def put_first(process: Process, first: bool) -> None:
    """Let the process's session run before all others of the machine, or like them again; root may do that.

    `nice` has no effect across sessions where the kernel groups processes by them (sched_autogroup).
    """
    (Path("/proc") / process.pid / "autogroup").write_text("-19" if first else "0")


def busy_seconds() -> float:
    """CPU time that the whole machine used since it was started, all processors together."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = fields
    return (user + nice + system + interrupts + soft_interrupts + stolen) / _TICKS


def resident_megabytes(process: Process) -> float:
    """Memory in use now (VmRSS)."""
    return _megabytes(process, "VmRSS")


def private_megabytes(process: Process) -> float:
    """Of the memory in use now, what no other process shares."""
    lines = (Path("/proc") / process.pid / "smaps_rollup").read_text().splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return round(sum(kilobytes) / _MEGABYTE, 1)


def peak_megabytes(process: Process) -> float:
    """The most that was in use at a time (VmHWM)."""
    return _megabytes(process, "VmHWM")


def _megabytes(process: Process, field: str) -> float:
    for line in (Path("/proc") / process.pid / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / _MEGABYTE, 1)
    raise ValueError(f"process {process.pid} ({process.name}) tells no {field}: it has ended")


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds between two readings, by name."""
    return {name: round(seconds - before[name], 2) for name, seconds in after.items()}
