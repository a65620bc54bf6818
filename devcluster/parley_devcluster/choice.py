"""Which cluster a user gets: an existing one, one made by kind, or one of programs found or built here.

The choice is a pure function of what was asked for and what the machine has.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

KUBECONFIG = "PARLEY_KUBECONFIG"
_ENGINES = ("docker", "podman", "nerdctl")
_LIMIT = 10.0

Which = Callable[[str], str | None]
Works = Callable[[str], bool]


class ChoiceError(ValueError):
    """The cluster that was asked for does not exist."""


@dataclass(frozen=True)
class Existing:
    """A cluster that the user has: used as it is, never taken down."""

    kubeconfig: Path


@dataclass(frozen=True)
class KindCluster:
    """A cluster in containers, made by kind with that engine."""

    program: Path
    engine: str


@dataclass(frozen=True)
class Local:
    """A cluster of processes on this machine."""


Choice = Existing | KindCluster | Local


def choose(
    kubeconfig: Path | None,
    environment: Mapping[str, str],
    which: Which = shutil.which,
    works: Works | None = None,
) -> Choice:
    """The cluster to use: a given kubeconfig, else kind where it and a container engine work, else local
    programs.

    Raises `ChoiceError` where a kubeconfig was named that does not exist.
    """
    named = kubeconfig or (Path(environment[KUBECONFIG]) if environment.get(KUBECONFIG) else None)
    if named is not None:
        if not named.is_file():
            raise ChoiceError(
                f"kubeconfig {str(named)!r} does not exist: name another one, or unset {KUBECONFIG} to get"
                " a cluster on this machine"
            )
        return Existing(named)
    kind = which("kind")
    engine = working_engine(which, works or engine_works) if kind else None
    return KindCluster(Path(kind), engine) if kind and engine else Local()


def working_engine(which: Which, works: Works) -> str | None:
    """The first container engine whose client is installed and whose server answers."""
    return next((engine for engine in _ENGINES if which(engine) and works(engine)), None)


def engine_works(engine: str) -> bool:
    """Whether the engine itself answers; a client alone is often installed without one."""
    try:
        done = subprocess.run([engine, "info"], capture_output=True, timeout=_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
