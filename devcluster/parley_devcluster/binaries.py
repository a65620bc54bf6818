"""Finds a cluster's programs: in KUBEBUILDER_ASSETS, on PATH, in the per-user cache, or built into that
cache.

A program found outside the cache counts only if it reports the wanted version: a kube-apiserver of another
release on PATH would make a cluster that nobody asked for. KUBEBUILDER_ASSETS is the user's explicit choice;
there the same minor release of Kubernetes, and any etcd, is enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster.gobuild import Report, build, missing_programs, say
from parley_devcluster.versions import GoModule, modules

ReportedVersion = Callable[[Path], str | None]

_NUMBER = re.compile(r"\bv?(\d+\.\d+\.\d+)\b")


@dataclass(frozen=True)
class Found:
    """Where each program was found, and which ones still have to be built into the cache."""

    paths: Mapping[str, Path]
    missing: tuple[str, ...]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The per-user cache: $XDG_CACHE_HOME/parley, else ~/.cache/parley."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "parley"


def obtain(
    wanted: Sequence[str],
    kubernetes: str,
    environment: Mapping[str, str] = os.environ,
    report: Report = say,
) -> dict[str, Path]:
    """The path of each wanted program; programs that are not found are built.

    Raises `BuildError` where something has to be built and cannot be.
    """
    cache = cache_directory(environment)
    sources = modules(kubernetes)
    found = find(wanted, sources, environment)
    if found.missing:
        build(cache, sources, found.missing, report)
        found = find(wanted, sources, environment)
    return dict(found.paths)


def find(
    wanted: Sequence[str],
    sources: Sequence[GoModule],
    environment: Mapping[str, str],
    reported: ReportedVersion | None = None,
) -> Found:
    """Where the wanted programs are found now; builds nothing."""
    versions = reported or reported_version
    cache = cache_directory(environment)
    absent = {name for _, name in missing_programs(cache, sources, wanted)}
    paths: dict[str, Path] = {}
    for module in sources:
        for name in (program for program, _ in module.programs if program in wanted):
            path = _outside(name, module, environment, versions)
            if path is None and name not in absent:
                path = cache / module.folder / name
            if path is not None:
                paths[name] = path
    return Found(paths, tuple(name for name in wanted if name not in paths))


def reported_version(program: Path) -> str | None:
    """The first version number that `program --version` prints, without `v`; None if it prints none."""
    arguments = {"kubectl": ["version", "--client"], "helm": ["version"]}.get(program.name, ["--version"])
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _NUMBER.search(done.stdout)
    return match.group(1) if match else None


def link(programs: Mapping[str, Path], folder: Path) -> None:
    """Link each program into `folder`, replacing links to other versions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in programs.items():
        target = folder / name
        target.unlink(missing_ok=True)
        target.symlink_to(path)


def _outside(
    name: str, module: GoModule, environment: Mapping[str, str], reported: ReportedVersion
) -> Path | None:
    """The program in the user's environment, if it is there in a suitable version."""
    assets = environment.get("KUBEBUILDER_ASSETS")
    chosen = Path(assets) / name if assets else None
    if chosen is not None and chosen.is_file() and _fits_assets(name, module, reported(chosen)):
        return chosen
    on_path = shutil.which(name, path=environment.get("PATH", ""))
    if on_path is not None and reported(Path(on_path)) == module.version.removeprefix("v"):
        return Path(on_path)
    return None


def _fits_assets(name: str, module: GoModule, version: str | None) -> bool:
    if name == "etcd":
        return True
    return version is not None and _minor(version) == _minor(module.version.removeprefix("v"))


def _minor(version: str) -> str:
    return version.rsplit(".", 1)[0]
