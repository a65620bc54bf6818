"""Builds a cluster's programs from pinned Go modules into the per-user cache.

Debian has no kube-apiserver, and Kubernetes publishes its programs only as files and images; as Go modules
they are behind the same proxy and checksum database as every other Go dependency. The machine's Go settings
are used as they are. One build runs at a time (a lock file in the cache), and a program appears in the cache
only when it is complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from parley_devcluster.versions import GoModule

Report = Callable[[str], None]

_STAGING = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/\S+)\s*=>\s*\./staging/", re.MULTILINE)
_GO = re.compile(r"^go (\S+)$", re.MULTILINE)
_STILL_BUILDING = 30.0  # seconds between two progress messages while one program builds


class BuildError(RuntimeError):
    """A program could not be built; the message ends with the Go tool's output."""


def say(line: str) -> None:
    """Print progress to stderr, so that stdout has only the command's own output."""
    print(f"parley: {line}", file=sys.stderr, flush=True)


def missing_programs(
    cache: Path, modules: Sequence[GoModule], wanted: Sequence[str]
) -> list[tuple[GoModule, str]]:
    """The wanted programs that are not in the cache, each with the module from which it is built."""
    return [
        (module, name)
        for module in modules
        for name, _ in module.programs
        if name in wanted and not (cache / module.folder / name).is_file()
    ]


def build(cache: Path, modules: Sequence[GoModule], wanted: Sequence[str], report: Report = say) -> None:
    """Build the wanted programs that are not in the cache: about 11 minutes on two cores if it is empty.

    Raises `BuildError` where Go is absent or a build fails. Waits for another process that is building.
    """
    if not missing_programs(cache, modules, wanted):
        return
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            "go is not on PATH: install Go 1.26 or later to build the cluster's programs, or name a folder that"
            " has them in KUBEBUILDER_ASSETS, or name an existing cluster's file in PARLEY_KUBECONFIG"
        )
    with _locked(cache, report):
        missing = missing_programs(cache, modules, wanted)
        started = time.monotonic()
        for number, (module, name) in enumerate(missing, 1):
            label = f"{name} {module.version} ({number} of {len(missing)})"
            _build_one(go, cache, module, name, _labelled(report, label), started)


def sources(path: str, version: str) -> Path:
    """The folder with a Go module's files, downloaded if necessary; raises `BuildError`."""
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"go is not on PATH: install Go 1.26 or later to download {path}")
    downloaded = _run([go, "mod", "download", "-json", f"{path}@{version}"], Path.home())
    return Path(json.loads(downloaded)["Dir"])


def go_mod(module: GoModule, original: str) -> str:
    """The go.mod of a module that only builds `module`'s programs; `original` is that module's own go.mod.

    Kubernetes replaces its staging modules by folders of its repository, which a module's archive does not
    hold; each is published as v0.<minor>.<patch> of the same release.
    """
    go = _GO.search(original)
    lines = [
        f"module parley.dev/build/{module.folder}",
        f"go {go.group(1)}" if go else "go 1.26",
        f"require {module.path} {module.version}",
    ]
    published = "v0" + module.version.removeprefix("v1")
    staging = sorted(set(_STAGING.findall(original)))
    return "\n".join([*lines, *(f"replace {path} => {path} {published}" for path in staging)]) + "\n"


def source(module: GoModule) -> Path:
    """The folder with the module's files, downloaded if necessary; raises `BuildError`."""
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"go is not on PATH: install Go 1.26 or later to get the files of {module.path}")
    downloaded = _run([go, "mod", "download", "-json", f"{module.path}@{module.version}"], Path("/"))
    return Path(json.loads(downloaded)["Dir"])


def build_command(go: str, module: GoModule, name: str, output: Path) -> list[str]:
    """The command line that builds one program of the module into `output`."""
    package = dict(module.programs)[name]
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in module.variables)])
    tags = ["-tags", ",".join(module.tags)] if module.tags else []
    verb = ["test", "-c", "-vet=off"] if module.tests else ["build"]
    return [go, *verb, "-mod=mod", "-trimpath", *tags, "-ldflags", flags, "-o", str(output), package]


def _build_one(go: str, cache: Path, module: GoModule, name: str, report: Report, started: float) -> None:
    folder = cache / "build" / module.folder
    folder.mkdir(parents=True, exist_ok=True)
    (cache / module.folder).mkdir(parents=True, exist_ok=True)
    report(f"building, {time.monotonic() - started:.0f} s elapsed")
    _write_go_mod(go, folder, module)
    partial = cache / module.folder / f".{name}.partial"
    _run(build_command(go, module, name, partial), folder, report, started)
    partial.rename(cache / module.folder / name)


def _labelled(report: Report, label: str) -> Report:
    return lambda text: report(f"{label}: {text}")


def _write_go_mod(go: str, folder: Path, module: GoModule) -> None:
    """Write the go.mod, unless it exists: earlier builds added what they resolved to it."""
    target = folder / "go.mod"
    if target.exists():
        return
    downloaded = _run([go, "mod", "download", "-json", f"{module.path}@{module.version}"], folder)
    original = Path(json.loads(downloaded)["GoMod"]).read_text()
    partial = folder / "go.mod.partial"
    partial.write_text(go_mod(module, original))
    partial.rename(target)


def _run(command: Sequence[str], folder: Path, report: Report | None = None, started: float = 0.0) -> str:
    """Run the command and return its stdout; raises `BuildError` with the end of its stderr."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        while True:
            try:
                output, errors = process.communicate(timeout=_STILL_BUILDING)
                break
            except subprocess.TimeoutExpired:
                if report is not None:
                    report(f"still building, {time.monotonic() - started:.0f} s elapsed")
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0:
        last = "\n".join((errors or output).strip().splitlines()[-15:])
        raise BuildError(f"{' '.join(command)} failed in {folder} (exit status {process.returncode}):\n{last}")
    return output


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    """Settings for static programs that run on any Linux, which ignore a Go workspace around the cache."""
    return {**base, "CGO_ENABLED": "0", "GOWORK": "off"}


@contextmanager
def _locked(cache: Path, report: Report) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process is building in {cache}, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
