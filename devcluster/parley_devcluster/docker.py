"""Docker's engine with a storage of its own, as long as it is used; of Debian's packages, unpacked into the cache.

Installed they would be a service that puts a bridge and firewall rules into this machine's network, where real
nodes have theirs. This one has neither: what it builds uses the machine's network. An engine on PATH is taken
before the packages', but never its service.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from parley_devcluster import commands
from parley_devcluster.binaries import cache_directory
from parley_devcluster.debian import PackagesMissing
from parley_devcluster.engine import BUILDKIT, Engine, EngineError
from parley_devcluster.gobuild import Report, say

PACKAGES = ("docker.io", "containerd")

_LIMIT = 300.0  # seconds for apt-get
_START = 30.0
_END = 30.0
_ABSENT = "docker's engine is not on this machine: `make machine` downloads it, as root on Debian"


class NoDocker(EngineError):
    """There is no engine, or it does not start; the message says why."""


def programs(environment: Mapping[str, str] = os.environ) -> str | None:
    """A PATH with dockerd, its containerd and its client; None if there is none."""
    path = environment.get("PATH", "")
    own = ":".join(str(_folder(environment) / "usr" / name) for name in ("bin", "sbin"))
    return next((one for one in (path, f"{own}:{path}") if shutil.which("dockerd", path=one)), None)


def unpack(report: Report = say, environment: Mapping[str, str] = os.environ) -> None:
    """Download the packages if there is no engine. Raises `PackagesMissing`."""
    if programs(environment) is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PackagesMissing(_ABSENT)
    report(f"downloading {', '.join(PACKAGES)}")
    cache = cache_directory(environment)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        _run("apt-get", "-q", "update")
        _run("env", f"--chdir={scratch}", "apt-get", "-q", "download", *PACKAGES)
        for package in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), f"{scratch}/root")
        Path(scratch, "root").rename(_folder(environment))


def _folder(environment: Mapping[str, str]) -> Path:
    return cache_directory(environment) / "docker"


def _run(*command: str) -> None:
    commands.run(command, lambda said: PackagesMissing(f"{_ABSENT}: {said}"), limit=_LIMIT)


@contextmanager
def serving(
    *options: str, build: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> Iterator[Engine]:
    """The engine, started with these options; its client builds with those of `build`.

    `environment` is the engine's, with its proxies. Raises `NoDocker`.
    """
    path = programs(environment)
    if path is None:
        raise NoDocker(_ABSENT)
    with _folder_in_memory() as run:
        engine = Engine(_client(run, path, build), {"DOCKER_HOST": f"unix://{run}/sock", **BUILDKIT})
        places = [f"--data-root={run}/data", f"--exec-root={run}/exec", f"--pidfile={run}/pid"]
        # the machine's own containerd is used if one runs
        apart = ["--containerd-namespace=parley.dev", "--containerd-plugins-namespace=plugins.parley.dev"]
        network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        network += ["--userland-proxy=false", f"--host=unix://{run}/sock"]
        with (run / "log").open("w") as log:
            process = subprocess.Popen(
                ["dockerd", *places, *apart, *network, *options],
                env={**environment, "PATH": path},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                _wait(engine, process, run / "log")
                yield engine
            finally:
                _end(process)


@contextmanager
def _folder_in_memory() -> Iterator[Path]:
    """On disk for who may not mount. An engine leaves 30,000 files, half a gigabyte: to remove these from a disk
    can take longer than to make them."""
    with tempfile.TemporaryDirectory(prefix="parley-docker-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", folder]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            yield Path(folder)
        finally:
            if mounted:
                subprocess.run(["umount", "--recursive", folder], check=True)


def _client(folder: Path, path: str, build: Sequence[str]) -> str:
    """The path of a docker client whose builds have these options."""
    client = folder / "docker"
    program = shutil.which("docker", path=path) or "docker"
    client.write_text(
        f'#!/bin/sh\nif [ "$1" = build ]; then shift; set -- build --network host {shlex.join(build)} "$@"; fi\n'
        f'exec {shlex.quote(program)} "$@"\n'
    )
    client.chmod(0o755)
    return str(client)


def _wait(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    late = time.monotonic() + _START
    while not engine.works():
        if process.poll() is not None or time.monotonic() > late:
            last = "\n".join(log.read_text().splitlines()[-5:])
            raise NoDocker(f"dockerd does not start here: {last}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
