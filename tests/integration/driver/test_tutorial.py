"""The tutorials that write a driver, followed literally on a real API server; `container` builds the image."""

from pathlib import Path

import pytest
from tests.support.pages import ROOT, follow

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


def test_the_first_driver_goes_from_an_empty_folder_to_a_deployment(
    installed: Cluster, kubectl: dict[str, str], tmp_path: Path
) -> None:
    follow(TUTORIALS / "first-driver.md", tmp_path, "On a cluster", environment=kubectl)

    deployed = installed.kubectl("get", "deployment", "slots", "-n", "parley-system", "-o", "name")
    assert deployed.strip() == "deployment.apps/slots"
    remove(installed, tmp_path, "slots.yaml", "deployment.yaml", "pod.yaml")


def test_the_driver_with_a_node_part_passes_its_tests_and_the_conformance_kit(
    installed: Cluster, kubectl: dict[str, str], tmp_path: Path
) -> None:
    follow(TUTORIALS / "node-part.md", tmp_path, "On a cluster", environment=kubectl)

    remove(installed, tmp_path, "scratch.yaml")
