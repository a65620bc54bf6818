"""A cluster in containers, made by kind from `kind.yaml` beside this file.

Untested: the machines that this project was developed on have no container engine. The configuration follows
kind's documentation; DRA needs a node image of Kubernetes 1.36 or later, which PARLEY_KIND_IMAGE can name.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from parley_devcluster.startup import ClusterError

NAME = "parley"
IMAGE = "PARLEY_KIND_IMAGE"
RECORD = "kind-cluster"
_LIMIT = 900.0  # seconds, the download of the node image included


def create(program: Path, engine: str, directory: Path, environment: Mapping[str, str]) -> Path:
    """Create the cluster and return its kubeconfig in `directory`; raises `ClusterError` with what kind said."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    kubeconfig = directory / "kubeconfig"
    (directory / RECORD).write_text(f"{program}\n{engine}\n")
    with resources.as_file(resources.files("parley_devcluster") / "kind.yaml") as configuration:
        _run(create_command(program, kubeconfig, configuration, environment.get(IMAGE)), engine, environment)
    return kubeconfig


def existing(directory: Path) -> Path | None:
    """The kubeconfig of the cluster that `create` recorded in the directory, if there is one."""
    return directory / "kubeconfig" if (directory / RECORD).is_file() else None


def delete(directory: Path, environment: Mapping[str, str]) -> bool:
    """Delete the cluster that `create` recorded in the directory; whether there was one."""
    record = directory / RECORD
    if not record.is_file():
        return False
    program, engine = record.read_text().split("\n")[:2]
    _run([program, "delete", "cluster", "--name", NAME], engine, environment)
    record.unlink()
    (directory / "kubeconfig").unlink(missing_ok=True)
    return True


def create_command(program: Path, kubeconfig: Path, configuration: Path, image: str | None) -> list[str]:
    """The command line that makes the cluster; `image` is that of its nodes, if not the default of kind."""
    command = [str(program), "create", "cluster", "--name", NAME, "--config", str(configuration)]
    command += ["--kubeconfig", str(kubeconfig), "--wait", "180s"]
    return [*command, "--image", image] if image else command


def _run(command: list[str], engine: str, environment: Mapping[str, str]) -> None:
    settings = {**environment, "KIND_EXPERIMENTAL_PROVIDER": engine}
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=_LIMIT, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip()}")
