"""Chooses the user's cluster: an existing one, one created by kind, or one of programs found or built here.

The choice is a pure function of what was asked for and what the machine has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import engine
from parley_devcluster.engine import Engine

KUBECONFIG = "PARLEY_KUBECONFIG"

Which = Callable[[str], str | None]
Find = Callable[[], Engine | None]


class ChoiceError(ValueError):
    """The requested cluster does not exist."""


@dataclass(frozen=True)
class Existing:
    """The user's own cluster: used as it is, never taken down."""

    kubeconfig: Path


@dataclass(frozen=True)
class KindCluster:
    """A cluster in containers, created by kind with that engine."""

    engine: Engine
    program: Path | None
    """The user's kind program; None if kind and the node image have to be built here."""


@dataclass(frozen=True)
class Local:
    """A cluster of processes on this machine."""


Choice = Existing | KindCluster | Local


def choose(
    kubeconfig: Path | None,
    environment: Mapping[str, str],
    which: Which = shutil.which,
    find: Find = engine.find,
    *,
    containers: bool = False,
) -> Choice:
    """The cluster to use: a given kubeconfig, else kind where it and a container engine work, else local
    programs. With `containers` kind's, in any case.

    Raises `ChoiceError` where a kubeconfig was named that does not exist, or containers were asked for and no
    engine works.
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
    if not kind and not containers:
        return Local()
    found = find()
    if found is None and containers:
        raise ChoiceError(
            f"no container engine works here ({', '.join(engine.ENGINES)}), which nodes in containers need:"
            " install one, or leave out --kind to get a cluster of processes"
        )
    return KindCluster(found, None if containers or not kind else Path(kind)) if found else Local()
