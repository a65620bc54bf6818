"""`up` and `down`: a cluster that outlives the command that started it, and its removal.

What runs is recorded in the directory, and nothing else is needed to take it down.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import kind, processes, state, teardown, versions
from parley_devcluster.choice import Existing, KindCluster, choose
from parley_devcluster.cluster import Cluster
from parley_devcluster.control_plane import API_SERVER
from parley_devcluster.gobuild import Report, say
from parley_devcluster.layout import NodeOptions

TWO_NODES = (NodeOptions("node-1"), NodeOptions("node-2"))


@dataclass(frozen=True)
class Up:
    """A cluster that is up: `cluster` is None where it is not made of processes of this machine."""

    kubeconfig: Path
    how: str
    cluster: Cluster | None


def default_directory() -> Path:
    """`/tmp/parley-<user id>`: short, because unix sockets lie in it."""
    return Path(f"/tmp/parley-{os.geteuid()}")


def up(
    directory: Path | None = None,
    *,
    nodes: Sequence[NodeOptions] = TWO_NODES,
    fake_nodes: int = 0,
    version: str = versions.KUBERNETES,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    report: Report = say,
) -> Up:
    """A cluster to use: the user's own, one made by kind, or one started here that keeps running afterwards.

    A cluster that runs in the directory already is returned as it is. Raises what `Cluster.start` raises, and
    `ChoiceError` for a kubeconfig that does not exist.
    """
    place = (directory or default_directory()).absolute()
    choice = choose(kubeconfig, environment)
    if isinstance(choice, Existing):
        return Up(choice.kubeconfig, f"the cluster of {choice.kubeconfig}", None)
    if running(place):
        cluster = Cluster.attach(place)
        return Up(cluster.kubeconfig, f"the cluster that runs in {place} already", cluster)
    made = kind.existing(place)
    if made is not None:
        return Up(made, f"the cluster that kind made for {place} already", None)
    if isinstance(choice, KindCluster):
        return Up(kind.create(choice.program, choice.engine, place, environment), "a cluster made by kind", None)
    cluster = Cluster.start(place, nodes=nodes, fake_nodes=fake_nodes, version=version, report=report)
    return Up(cluster.kubeconfig, f"a cluster of this machine's processes in {place}", cluster)


def down(directory: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Remove the cluster that `up` left in the directory, its files included; whether there was one.

    Never touches a cluster of the user's own. Raises `Leftovers` where something remains.
    """
    place = (directory or default_directory()).resolve()
    if kind.delete(place, environment):
        shutil.rmtree(place, ignore_errors=True)
        return True
    if state.read(place) is None:
        return False
    teardown.clean(place)
    teardown.remove_directory(place)
    return True


def running(directory: Path) -> bool:
    """Whether a cluster's API server runs that the directory records."""
    recorded = state.read(directory.resolve())
    server = recorded.processes.get(API_SERVER) if recorded else None
    return server is not None and processes.alive(server)
