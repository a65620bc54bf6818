"""`up` and `down`: start a cluster that outlives the command, and remove it.

The running processes are recorded in the directory, and nothing else is needed to take the cluster down.
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
    """A running cluster: processes of this machine (`cluster`), containers (`engine`), or the user's own."""

    kubeconfig: Path
    how: str
    cluster: Cluster | None = None
    engine: Engine | None = None


def default_directory() -> Path:
    """`/tmp/parley-<user id>`: short, because it contains unix sockets."""
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
    """A cluster to use: the user's own, one created by kind, or one of processes started here, which keep running.

    If a cluster already runs in the directory, it is returned unchanged. With `containers`, kind creates one from
    a node image that is built here. Raises the errors of `Cluster.start`, and `ChoiceError` for a kubeconfig that
    does not exist.
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
    """The kubeconfig of a cluster created by the user's kind from its default image, or else by the kind program
    and from the node image that are built here."""
    if choice.program is not None:
        return kind.create(choice.program, choice.engine, place, environment.get(kind.IMAGE))
    image = environment.get(kind.IMAGE) or kind_image.ensure(choice.engine, version, report)
    programs = binaries.obtain(("kind", "kubectl"), version, environment, report)
    report(f"kind makes a cluster of {image}")
    kubeconfig = kind.create(programs["kind"], choice.engine, place, image)
    binaries.link({"kubectl": programs["kubectl"]}, place / "bin")
    return kubeconfig


def down(directory: Path | None = None) -> bool:
    """Remove the cluster that `up` started in the directory, including its files. Returns whether there was one.

    Never touches a cluster of the user's own. Raises `Leftovers` if something remains.
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
    """Whether the API server of the cluster recorded in the directory runs."""
    recorded = state.read(directory.resolve())
    server = recorded.processes.get(API_SERVER) if recorded else None
    return server is not None and processes.alive(server)
