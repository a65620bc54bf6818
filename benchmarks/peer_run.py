"""Runs a peer's scheduler_perf once, in a folder of its own, and reads what it took from its log and /proc."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import peers
from benchmarks.peer_output import Reading, Span, announcement, between, last_binding, throughput
from benchmarks.peers import Peer
from benchmarks.turns import Turn
from benchmarks.usage import Process, busy_seconds, cpu_seconds, put_first
from parley_devcluster.binaries import cache_directory, obtain
from parley_devcluster.gobuild import build, source
from parley_devcluster.versions import KUBERNETES, SCHEDULER_PERF

_PERIOD = 0.05
"""Seconds between two readings; so much later than it began, at most, a run is taken to begin."""

_LIMIT = 1800.0
_SHOWN = 15
"""Lines of the log in an error."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can be run: its test binary, the files of its module, and the etcd that our cluster has too."""

    peer: Peer
    program: Path
    source: Path
    etcd: Path


def install(peer: Peer) -> Installed:
    """Build what the cache lacks. Raises BuildError, with what Go said, where that fails."""
    module = peer.module
    build(cache_directory(), [module], [SCHEDULER_PERF])
    etcd = obtain(["etcd"], KUBERNETES)["etcd"]
    return Installed(peer, cache_directory() / module.folder / SCHEDULER_PERF, source(module), etcd)


def run(installed: Installed, turn: int, pods: int, nodes: int, *, first: bool) -> Turn:
    """One turn, before other work of the machine if `first`.

    Raises RuntimeError, with the end of its log, if scheduler_perf fails or takes more than half an hour, and
    ValueError if it does not tell of every binding.
    """
    with tempfile.TemporaryDirectory(prefix="parley-peer-") as name:
        folder = Path(name)
        started = datetime.now(UTC)
        there = _prepare(installed, folder, pods, nodes)
        created, readings = _run(installed, folder, there, announcement(peers.NAMESPACE, pods), first)
        log = (folder / "log").read_text(errors="replace")
        span = Span(created, last_binding(log, peers.NAMESPACE, pods, started.year))
        spent = between(readings, span)
        (figures,) = (folder / "results").glob("*.json")
        return Turn(
            way=installed.peer.label,
            turn=turn,
            pods=pods,
            nodes=nodes,
            pods_per_second=round(pods / span.seconds, 1),
            cpu_ms_per_pod=round(1000 * spent.used / pods, 1),
            others=round((spent.busy - spent.used) / (span.seconds * (os.cpu_count() or 1)), 2),
            own_pods_per_second=throughput(figures.read_bytes()),
        )


def _prepare(installed: Installed, folder: Path, pods: int, nodes: int) -> Path:
    """Make the folder that scheduler_perf is started in, and return it."""
    peer, shipped = installed.peer, installed.source / installed.peer.folder
    there = folder / "configuration"
    for path in (peer.configuration, peer.templates):
        (there / path).parent.mkdir(parents=True, exist_ok=True)
    (there / peer.templates).symlink_to(shipped / peer.templates)
    text = peers.configuration(peer, (shipped / peer.configuration).read_text(), pods, nodes)
    (there / peer.configuration).write_text(text)
    script = folder / "bin" / "etcd"
    script.parent.mkdir()
    script.write_text(peers.etcd_script(installed.etcd, folder / "etcd.pid"))
    script.chmod(0o755)
    return there


def _run(
    installed: Installed, folder: Path, there: Path, announced: str, first: bool
) -> tuple[float, list[Reading]]:
    """When its log said so, and the readings until it ended."""
    module_cache = installed.source.parents[installed.peer.module.path.count("/")]
    log, etcd_pid = folder / "log", folder / "etcd.pid"
    with log.open("ab") as output:
        process = subprocess.Popen(
            peers.command(installed.program, folder / "results"),
            cwd=there,
            env=peers.environment(os.environ, folder / "bin", folder, module_cache),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    readings: list[Reading] = []
    created = None
    with _ended(process), log.open(errors="replace") as told:
        if first:
            put_first(Process(SCHEDULER_PERF, str(process.pid)), True)
        text = ""
        for reading in _readings(process, etcd_pid):
            readings.append(reading)
            text = text[-len(announced) :] + told.read()
            if created is None and announced in text:
                created = reading.moment
    if process.returncode != 0 or created is None:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-_SHOWN:])
        raise RuntimeError(f"{installed.peer.label} ended with {process.returncode}; its last words:\n{last}")
    return created, readings


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Afterwards nothing of its session runs any more, its etcd included."""
    try:
        yield
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it ended by itself
        process.wait()


def _readings(process: subprocess.Popen[bytes], etcd_pid: Path) -> Iterator[Reading]:
    """Until it has ended. Raises RuntimeError if that takes too long."""
    deadline = time.monotonic() + _LIMIT
    itself, etcd = Process(SCHEDULER_PERF, str(process.pid)), 0.0
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"scheduler_perf has not ended within {_LIMIT:.0f} s")
        etcd = _etcd_seconds(etcd_pid, etcd)
        yield Reading(time.time(), cpu_seconds(itself) + etcd, busy_seconds())
        time.sleep(_PERIOD)


def _etcd_seconds(pid_file: Path, known: float) -> float:
    """What its etcd used so far; `known` if it has not started yet, or has ended since."""
    try:
        return cpu_seconds(Process("etcd", pid_file.read_text().strip()))
    except (FileNotFoundError, ProcessLookupError):
        return known
