"""`up` and `down`: a cluster that outlives the command that started it, and its removal.

What runs is recorded in the directory, and nothing else is needed to take it down.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import binaries, kind, kind_image, processes, state, teardown, versions
from parley_devcluster.choice import Existing, KindCluster, choose
from parley_devcluster.cluster import Cluster
from parley_devcluster.control_plane import API_SERVER
from parley_devcluster.engine import Engine
from parley_devcluster.gobuild import Report, say
from parley_devcluster.layout import NodeOptions

TWO_NODES = (NodeOptions("node-1"), NodeOptions("node-2"))


@dataclass(frozen=True)
class Up:
    """A cluster that is up: of this machine's processes (`cluster`), of containers (`engine`), or the user's."""

    kubeconfig: Path
    how: str
    cluster: Cluster | None = None
    engine: Engine | None = None


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
    containers: bool = False,
    environment: Mapping[str, str] = os.environ,
    report: Report = say,
) -> Up:
    """A cluster to use: the user's own, one made by kind, or one started here that keeps running afterwards.

    A cluster that runs in the directory already is returned as it is; with `containers` one is made by kind of a
    node image that is made here. Raises what `Cluster.start` raises, and `ChoiceError` for a kubeconfig that does
    not exist.
    """
    place = (directory or default_directory()).absolute()
    choice = choose(kubeconfig, environment, containers=containers)
    if isinstance(choice, Existing):
        return Up(choice.kubeconfig, f"the cluster of {choice.kubeconfig}")
    if running(place):
        cluster = Cluster.attach(place)
        return Up(cluster.kubeconfig, f"the cluster that runs in {place} already", cluster)
    made = kind.existing(place)
    if made is not None:
        return Up(made, f"the cluster that kind made for {place} already", engine=kind.engine_of(place))
    if isinstance(choice, KindCluster):
        made = _in_containers(choice, place, version, environment, report)
        return Up(made, "a cluster made by kind", engine=choice.engine)
    cluster = Cluster.start(place, nodes=nodes, fake_nodes=fake_nodes, version=version, report=report)
    return Up(cluster.kubeconfig, f"a cluster of this machine's processes in {place}", cluster)


def _in_containers(
    choice: KindCluster, place: Path, version: str, environment: Mapping[str, str], report: Report
) -> Path:
    """The kubeconfig of a cluster made by the user's kind of its default image, else by what is made here."""
    if choice.program is not None:
        return kind.create(choice.program, choice.engine, place, environment.get(kind.IMAGE))
    image = environment.get(kind.IMAGE) or kind_image.ensure(choice.engine, version, report)
    programs = binaries.obtain(("kind", "kubectl"), version, environment, report)
    report(f"kind makes a cluster of {image}")
    kubeconfig = kind.create(programs["kind"], choice.engine, place, image)
    binaries.link({"kubectl": programs["kubectl"]}, place / "bin")
    return kubeconfig


def down(directory: Path | None = None) -> bool:
    """Remove the cluster that `up` left in the directory, its files included; whether there was one.

    Never touches a cluster of the user's own. Raises `Leftovers` where something remains.
    """
    place = (directory or default_directory()).resolve()
    if kind.delete(place):
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
