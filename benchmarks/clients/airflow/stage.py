"""What the runs are measured on: two real nodes with few pod slots, Parley's workspaces, local-path-provisioner.

Airflow runs beside, with the account and the rights that its workers have.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.clients.airflow import installed, provisioner, source
from parley.drivers.workspace import WorkspaceDriver
from parley_devcluster import Cluster, NodeOptions, clean
from parley_devcluster.gobuild import say
from parley_devcluster.layout import Node
from parley_devcluster.parley import run_parley, wait_for_devices

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "airflow"
NAMESPACE = "default"

SLOTS = 12
"""Pods that a node takes."""

_NODES = ("node-a", "node-b")
_SIZE = "10Gi"


@dataclass(frozen=True)
class Stage:
    """The cluster, Airflow, and where each node's directories are."""

    cluster: Cluster
    airflow: installed.Airflow
    workspaces: Path
    volumes: Path
    repository: str

    def left(self) -> Mapping[str, int]:
        """What there is of runs on both nodes: directories, and specifications for the container runtime."""
        specifications = [file for node in self.cluster.nodes for file in node.cdi_dir.glob("*")]
        return {
            "workspaces": len(list(self.workspaces.glob("*/data/*"))),
            "half removed workspaces": len(list(self.workspaces.glob("*/trash/*"))),
            "specifications": len(specifications),
            "volumes": len(list(self.volumes.glob("*/*"))),
        }


@contextmanager
def stage(patience: int) -> Iterator[Stage]:
    """Everything running, and gone at the end; a task's pod may wait for its node for `patience` seconds."""
    place = Path(tempfile.mkdtemp(prefix="pa-", dir="/tmp"))
    try:
        with Cluster.start(place / "c", nodes=[NodeOptions(name) for name in _NODES]) as cluster:
            equipped = _equipped(cluster, place, patience)
            try:
                yield equipped
            finally:
                installed.end(cluster)
    finally:
        clean(place / "c")
        shutil.rmtree(place)


def _equipped(cluster: Cluster, place: Path, patience: int) -> Stage:
    for node in cluster.nodes:
        _limit(cluster, node)
    workspaces, volumes = place / "workspaces", place / "volumes"
    configurations = {node.name: _configuration(place, node, workspaces / node.name) for node in cluster.nodes}
    options = ("--driver", "workspaces")
    run_parley(cluster, deploy=ROOT / "deploy", devices=configurations, node_arguments=options)
    wait_for_devices(cluster)
    provisioner.run(cluster, {node.name: volumes / node.name for node in cluster.nodes})
    source.import_image(cluster, place)
    repository = source.serve(cluster, place / "git", cluster.nodes[0].address)
    cluster.kubectl("create", "namespace", installed.NAMESPACE)
    cluster.kubectl("create", "serviceaccount", installed.ACCOUNT, f"--namespace={installed.NAMESPACE}")
    cluster.kubectl("apply", "-f", str(EXAMPLE / "cluster.yaml"))
    say("starting Airflow")
    dags = place / "dags"
    dags.mkdir()
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, dags)
    airflow = installed.start(cluster, dags, place / "airflow", patience)
    return Stage(cluster, airflow, workspaces, volumes, repository)


def _limit(cluster: Cluster, node: Node) -> None:
    """A node with few pod slots is full with few pods."""
    file = node.folder / "kubelet.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "maxPods": SLOTS}))
    kubelet = cluster.component(node.kubelet)
    kubelet.stop()
    kubelet.start()


def _configuration(place: Path, node: Node, root: Path) -> Path:
    file = place / f"{node.name}.yaml"
    settings = {"root": str(root), "size": _SIZE}
    file.write_text(yaml.safe_dump({"drivers": {WorkspaceDriver.name: settings}}))
    return file
