"""The tutorials that need real nodes, followed literally to their end on the cluster that one command makes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import directory, require_machine
from tests.support.pages import ROOT, File, follow, steps, take

from parley.cli.permissions import account_name
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN, node_plugin_arguments

pytestmark = pytest.mark.cluster

TUTORIALS = ROOT / "docs" / "tutorials"
DEVICE, NODE_PART = TUTORIALS / "device.md", TUTORIALS / "node-part.md"
PROGRAMS = Path(sys.executable).parent
SCRATCH = "scratch.example.com"


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
    yield {"KUBECONFIG": kubeconfig, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
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
    (tmp_path / "here.yaml").write_text(configuration)
    for step in steps(NODE_PART):
        if not isinstance(step, File) and step.where == "On a cluster":
            take(step, tmp_path, "On a cluster", environment=kubectl)
        elif not isinstance(step, File) and step.where == "When both parts run":
            if not folders.exists():
                start_both_parts(Cluster.attach(place), tmp_path)
            take(step, tmp_path, "When both parts run", environment=kubectl)

    assert folders.is_dir()
    assert list(folders.iterdir()) == []


def start_both_parts(cluster: Cluster, folder: Path) -> None:
    """The driver, and its part on the first node, with the accounts that they have in a cluster."""
    node = cluster.nodes[0]
    environment = {"PYTHONPATH": str(folder)}
    account = cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=node.name)
    arguments = node_plugin_arguments(node, account, folder / "here.yaml")
    program = [str(PROGRAMS / "parley-kubelet"), "--driver", "scratch_node:ScratchNode", *arguments]
    cluster.add_program("scratch-node", program, environment=environment)
    (folder / "folders").mkdir()
    account = cluster.kubeconfig_for_service_account(NAMESPACE, account_name(SCRATCH))
    command = [str(PROGRAMS / "parley"), "driver", "run", "scratch_driver:Scratch", "--kubeconfig", str(account)]
    cluster.add_program("scratch-driver", command, environment=environment)
