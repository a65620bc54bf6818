"""docs/tutorials/first-driver.md, followed literally on a real API server; no image is built."""

from pathlib import Path

import pytest
from tests.support.pages import ROOT, follow

from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


def test_it_leads_from_an_empty_folder_to_a_deployment(installed: Cluster, tmp_path: Path) -> None:
    environment = {
        "KUBECONFIG": str(installed.kubeconfig),
        "PATH": f"{installed.directory / 'bin'}:/usr/bin:/bin",
    }
    follow(ROOT / "docs" / "tutorials" / "first-driver.md", tmp_path, "On a cluster", environment=environment)

    deployed = installed.kubectl("get", "deployment", "slots", "-n", "parley-system", "-o", "name")
    assert deployed.strip() == "deployment.apps/slots"
    cleared = ["-f", str(tmp_path / "slots.yaml"), "-f", str(tmp_path / "deployment.yaml")]
    installed.kubectl("delete", "--wait=false", *cleared, "-f", str(tmp_path / "pod.yaml"))
