"""A container engine: the user's own docker, or podman with a storage and settings of its own.

Podman's defaults fail in the containers and virtual machines that CI runs in: they want systemd for cgroups, and
limits above those that the process has. The settings here take what every Linux grants root. They lie beside the
images in one folder, so that nothing of the user's own podman is read or changed.
"""

from __future__ import annotations

import os
import resource
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import commands
from parley_devcluster.binaries import cache_directory

PODMAN = "podman"
ENGINES = ("docker", PODMAN, "nerdctl")
BUILDKIT = {"DOCKER_BUILDKIT": "1"}
"""Docker before version 23 supports build secrets only with this."""

_ANSWER = 20.0  # seconds for a query
_WORK = 1800.0  # seconds for building or importing an image


class EngineError(RuntimeError):
    """A command of the engine failed; the message ends with its output."""


@dataclass(frozen=True)
class Engine:
    """The client of a container engine, and its environment variables."""

    program: str
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The engine's name for kind."""
        return Path(self.program).name

    def environment(self) -> dict[str, str]:
        """The environment of processes that start the engine's client, such as kind."""
        return {**os.environ, **self.settings}

    def works(self) -> bool:
        """Whether the engine itself responds; often only a client is installed."""
        try:
            self.run("info", limit=_ANSWER)
        except (EngineError, OSError):
            return False
        return True

    def has(self, image: str) -> bool:
        """Whether the engine has an image of that name."""
        try:
            self.run("image", "inspect", image, limit=_ANSWER)
        except EngineError:
            return False
        return True

    def run(self, *arguments: str, limit: float = _WORK, stdin: Path | None = None) -> str:
        """Run a command and return its output; raises `EngineError` with the end of its stderr."""
        return commands.run(
            [self.program, *arguments],
            EngineError,
            limit=limit,
            environment=self.environment(),
            stdin=stdin or "",
            shown=f"{self.name} {' '.join(arguments)}",
        )

    def save(self, image: str, archive: Path) -> None:
        """Write the image into an OCI archive; raises `EngineError`."""
        form = ["--format", "oci-archive"] if self.name == PODMAN else []
        self.run("save", *form, "--output", str(archive), image)
        with tarfile.open(archive) as saved:
            names = {name.removeprefix("./") for name in saved.getnames()}
        if "oci-layout" not in names:
            archive.unlink()
            raise EngineError(
                f"{self.name} saved {image}, but not as an OCI archive: take docker 25 or newer, or podman"
            )


def require() -> Engine:
    """The engine that `find` returns; raises `EngineError` if none works."""
    found = find()
    if found is None:
        raise EngineError(
            f"no container engine works here ({', '.join(ENGINES)}): install one, and start its daemon if it has"
            " one"
        )
    return found


def find(environment: Mapping[str, str] = os.environ, names: Sequence[str] = ENGINES) -> Engine | None:
    """The first engine of those names that is installed and works; None if none does."""
    for name in names:
        program = shutil.which(name, path=environment.get("PATH", ""))
        if program is None:
            continue
        own = name == PODMAN and os.geteuid() == 0
        engine = Engine(program, podman_settings(storage_folder(environment)) if own else BUILDKIT)
        if engine.works():
            return engine
    return None


def storage_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where root's podman has its images, containers and settings here: in the user's cache."""
    return cache_directory(environment) / "engine"


def podman_settings(folder: Path) -> dict[str, str]:
    """Write podman's configuration into the folder; returns the environment variables that select it."""
    folder.mkdir(parents=True, exist_ok=True)
    runtime = next((name for name in ("crun", "runc") if shutil.which(name)), "runc")
    limits = {"nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1], "nproc": _processes()}
    texts = {"containers.conf": containers_conf(folder, runtime, limits), "storage.conf": storage_conf(folder)}
    for name, text in texts.items():
        partial = folder / f"{name}.{os.getpid()}"
        partial.write_text(text)
        partial.rename(folder / name)
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def containers_conf(folder: Path, runtime: str, limits: Mapping[str, int]) -> str:
    """podman's settings: cgroups without systemd, and as limits those that this process may hand on."""
    granted = [f"{name}={value}:{value}" for name, value in limits.items() if value != resource.RLIM_INFINITY]
    return f"""\
[containers]
default_ulimits = {_list(granted)}

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "{runtime}"
tmp_dir = "{folder}/run/libpod"

[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


def storage_conf(folder: Path) -> str:
    """podman's storage settings: the folders of images and containers."""
    return f"""\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run/storage"
"""


def _processes() -> int:
    """The maximum number of processes of a container: podman lowers its own limit to the kernel's highest id."""
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    granted = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return highest if granted == resource.RLIM_INFINITY else min(granted, highest)


def _list(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
