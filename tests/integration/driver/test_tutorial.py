"""The tutorials that write a driver, followed literally on a real API server; `container` builds the image."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.pages import ROOT, Command, follow, run, steps

from parley.cli.permissions import account_name
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.fixture
def kubectl(installed: Cluster) -> dict[str, str]:
    """The environment in which kubectl means the cluster."""
    return {"KUBECONFIG": str(installed.kubeconfig), "PATH": f"{installed.directory / 'bin'}:/usr/bin:/bin"}


def remove(cluster: Cluster, folder: Path, *files: str) -> None:
    for file in files:
        cluster.kubectl("delete", "--wait=false", "-f", str(folder / file))


@contextmanager
def driver_of_the_deployment(folder: Path, kubeconfig: Path) -> Iterator[None]:
    """The command of the tutorial's image runs, with the account of its Deployment, and works."""
    command = [sys.executable, "-m", "parley", "driver", "run", "slots:Slots"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(folder)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        said = next((line for line in started.stderr if "driver restored" in line), "")
        yield
        started.terminate()
        rest = started.stderr.read()
    assert said, rest
    assert started.returncode == 0, rest


def test_the_first_driver_goes_from_an_empty_folder_to_a_deployment(
    installed: Cluster, kubectl: dict[str, str], tmp_path: Path
) -> None:
    follow(TUTORIALS / "first-driver.md", tmp_path, "On a cluster", environment=kubectl)

    deployed = installed.kubectl("get", "deployment", "slots", "-n", "parley-system", "-o", "name")
    assert deployed.strip() == "deployment.apps/slots"
    account = installed.kubeconfig_for_service_account("parley-system", account_name("slots.example.com"))
    with driver_of_the_deployment(tmp_path, account):
        for step in steps(TUTORIALS / "first-driver.md"):
            if isinstance(step, Command) and step.where == "When the driver runs":
                run(step, tmp_path, kubectl)
    remove(installed, tmp_path, "slots.yaml", "deployment.yaml", "pod.yaml")


def test_the_driver_with_a_node_part_passes_its_tests_and_the_conformance_kit(
    installed: Cluster, kubectl: dict[str, str], tmp_path: Path
) -> None:
    follow(TUTORIALS / "node-part.md", tmp_path, "On a cluster", environment=kubectl)

    remove(installed, tmp_path, "scratch.yaml")
