"""The kustomizations: each can be built, and the API server takes what comes out."""

from pathlib import Path

import pytest
import yaml

from parley.devcluster import Cluster

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).parents[3] / "deploy"
WORKLOADS = {"Deployment", "DaemonSet", "ConfigMap", "PodDisruptionBudget"}


def kinds(cluster: Cluster, folder: str) -> set[str]:
    built = cluster.kubectl("kustomize", str(DEPLOY / folder))
    return {document["kind"] for document in yaml.safe_load_all(built)}


def test_base_and_workloads_together_are_the_default(installed: Cluster) -> None:
    base, workloads = kinds(installed, "base"), kinds(installed, "workloads")

    assert workloads == WORKLOADS
    assert not base & WORKLOADS
    assert kinds(installed, "default") == base | workloads
    assert kinds(installed, "devcluster") == base


@pytest.mark.parametrize("folder", ["base", "workloads", "default", "devcluster"])
def test_the_api_server_takes_it(installed: Cluster, folder: str) -> None:
    told = installed.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(DEPLOY / folder)
    )

    assert told.count("(server dry run)") == len(told.strip().splitlines())


def test_the_definitions_can_be_applied_file_by_file(installed: Cluster) -> None:
    told = installed.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(DEPLOY.parent / "crds")
    )

    assert told.count("customresourcedefinition") == 4
