"""The tutorials that need real nodes, followed literally to their end on the cluster that one command makes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.node_plugins import may_publish
from tests.cluster.nodes import wait_for_registration
from tests.cluster.starting import directory, require_machine
from tests.support.pages import ROOT, Command, File, follow, steps, take
from tests.support.shell import PROGRAMS, path
from tests.support.shown import shown

from parley.cli.permissions import account_name
from parley_devcluster import Cluster
from parley_devcluster.component import Component
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN

pytestmark = pytest.mark.cluster

TUTORIALS = ROOT / "docs" / "tutorials"
DEVICE, NODE_PART = TUTORIALS / "device.md", TUTORIALS / "node-part.md"
SCRATCH = "scratch.example.com"
DRIVERS_PLACE = "Where the driver runs"


def parley_cluster(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "parley", "cluster", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    require_machine(real_nodes=True)
    with directory() as path:
        yield path


@pytest.fixture(scope="module")
def kubectl(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which kubectl means a new cluster, whose devices are those of the tutorial."""
    folder = tmp_path_factory.mktemp("devices")
    files(DEVICE, folder)
    kubeconfig = parley_cluster("up", "--directory", place, "--devices", folder / "devices")
    yield {"KUBECONFIG": kubeconfig, "PATH": path(place / "bin")}
    parley_cluster("down", "--directory", place)


def files(page: Path, folder: Path) -> None:
    """Make the page's files."""
    for step in steps(page):
        if isinstance(step, File):
            take(step, folder)


def test_a_device_from_its_node_to_a_container_and_back(kubectl: dict[str, str], tmp_path: Path) -> None:
    follow(DEVICE, tmp_path, "On the development cluster", environment=kubectl)


def test_a_folder_from_the_two_parts_of_a_driver_to_a_container_and_back(
    place: Path, kubectl: dict[str, str], tmp_path: Path
) -> None:
    folders = tmp_path / "folders"
    files(NODE_PART, tmp_path)
    configuration = (tmp_path / "node.yaml").read_text().replace("/var/lib/scratch", str(folders))
    (tmp_path / "node.yaml").write_text(configuration)
    for step in steps(NODE_PART):
        if not isinstance(step, File) and step.where == "On a cluster":
            take(step, tmp_path, "On a cluster", environment=kubectl)
        elif not isinstance(step, File) and step.where == "When both parts run":
            if not folders.exists():
                start_both_parts(Cluster.attach(place), tmp_path)
            take(step, tmp_path, "When both parts run", environment=kubectl)

    assert folders.is_dir()
    assert list(folders.iterdir()) == []
    run_as_the_page_on_nodes_does(Cluster.attach(place), tmp_path)


def run_as_the_page_on_nodes_does(cluster: Cluster, folder: Path) -> None:
    """docs/node-driver.md's command, with the account of node plugins and a token for the node."""
    cluster.component("tutorial-node-1").stop(limit=20)
    may_publish(cluster)
    account = cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node="node-1")
    command = shown((ROOT / "docs" / "node-driver.md").read_text(), "PYTHONPATH=. parley-kubelet")
    plugin = start_on_the_node(cluster, "page", command, folder, {"KUBECONFIG": account})
    plugin.stop(limit=20)
    assert "Forbidden" not in plugin.log.read_text()


def typed(where: str) -> str:
    """The tutorial's command of the block with that title."""
    (line,) = (step.line for step in steps(NODE_PART) if isinstance(step, Command) and step.where == where)
    return line


def start_both_parts(cluster: Cluster, folder: Path) -> None:
    """The driver with its own account, and its part on the node as the administrator."""
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").symlink_to(cluster.kubeconfig)
    start_on_the_node(cluster, "tutorial", typed("On a node"), folder, {"HOME": folder})
    (folder / "folders").mkdir()
    account = cluster.kubeconfig_for_service_account(NAMESPACE, account_name(SCRATCH))
    start(cluster, "scratch-driver", typed(DRIVERS_PLACE), folder, {"KUBECONFIG": account})


def start_on_the_node(
    cluster: Cluster, name: str, command: str, folder: Path, environment: Mapping[str, Path]
) -> Component:
    """The node's part, which the kubelet has taken, with this machine's folders."""
    node = cluster.node("node-1")
    places = {
        "PLUGINS_DIR": node.plugins_dir,
        "PLUGINS_REGISTRY_DIR": node.plugins_registry_dir,
        "CDI_DIR": node.cdi_dir,
        "STATE_DIR": node.parley_dir,
    }
    component = start(cluster, f"{name}-{node.name}", command, folder, {**places, **environment})
    wait_for_registration(cluster, node.name, program=name)
    return component


def start(cluster: Cluster, name: str, command: str, folder: Path, environment: Mapping[str, Path]) -> Component:
    """Type the command in the folder, where the driver's code is."""
    own = {"PATH": path(PROGRAMS), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    settings = {**own, **{key: str(value) for key, value in environment.items()}}
    typed = f"cd {folder} && exec env {command}"
    return cluster.add_program(name, ["/bin/bash", "-c", typed], environment=settings)
