"""Parley in a cluster: manifests applied, programs started with the accounts' rights, restarted like any other.

Stand-ins take the place of the controller and the node plugin: what is shown is how they are started.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.watching import LIMIT

from parley_devcluster import Cluster, ClusterError
from parley_devcluster.parley import install, run_parley

pytestmark = pytest.mark.cluster

STAND_IN = "import json, sys, time; print(json.dumps(sys.argv[1:]), flush=True); time.sleep(600)"

MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {name: parley-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: parley-controller, namespace: parley-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: parley-kubelet, namespace: parley-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.devcluster.example.org}
spec:
  group: devcluster.example.org
  scope: Cluster
  names: {kind: Thing, plural: things}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
"""


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    folder = tmp_path / "deploy" / "devcluster"
    folder.mkdir(parents=True)
    (folder / "manifests.yaml").write_text(MANIFESTS)
    (folder / "kustomization.yaml").write_text("resources: [manifests.yaml]\n")
    return folder.parent


def test_parley_runs_with_its_own_accounts_and_one_plugin_per_node(
    cluster: Cluster, deploy: Path, tmp_path: Path
) -> None:
    devices = {node.name: tmp_path / f"{node.name}.yaml" for node in cluster.nodes}
    for file in devices.values():
        file.touch()
    program = [sys.executable, "-c", STAND_IN]

    run_parley(cluster, deploy=deploy, devices=devices, controller=[*program, "controller"], node_plugin=program)

    assert "things" in cluster.kubectl("api-resources", "--api-group=devcluster.example.org", "-o", "name")
    accounts = cluster.directory / "kubeconfigs"
    controller = cluster.component("parley-controller")
    assert told(controller.log) == [
        *("controller", "--kubeconfig", f"{accounts}/sa-parley-system-parley-controller"),
        *("--identity", "parley-controller", "--one-at-a-time"),
    ]
    n2 = cluster.node("n2")
    assert told(cluster.component("parley-kubelet-n2").log) == [
        *("--kubeconfig", f"{accounts}/sa-parley-system-parley-kubelet-n2"),
        *("--node-name", "n2"),
        *("--config", str(devices["n2"])),
        *("--plugins-dir", str(n2.plugins_dir)),
        *("--plugins-registry-dir", str(n2.plugins_registry_dir)),
        *("--cdi-dir", str(n2.cdi_dir)),
        *("--state-dir", str(n2.folder / "parley")),
    ]

    first = controller.pid
    controller.kill()
    controller.start()
    assert controller.pid not in (None, first)
    assert Cluster.attach(cluster.directory).component("parley-controller").pid == controller.pid


def test_a_node_without_its_device_file_is_named(cluster: Cluster, deploy: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as absent:
        run_parley(cluster, deploy=deploy)
    with pytest.raises(ClusterError) as missing:
        run_parley(cluster, deploy=deploy, devices={"n1": tmp_path / "n1.yaml"})

    assert str(absent.value) == "node 'n1' has no device configuration file: give it in `devices`"
    assert str(missing.value) == f"node 'n1': its device configuration file {tmp_path}/n1.yaml does not exist"


def test_a_folder_without_manifests_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        install(cluster, tmp_path)

    assert (
        str(caught.value)
        == f"{tmp_path} has no folder 'devcluster': name the folder that holds Parley's manifests"
    )


def told(log: Path) -> list[str]:
    """The arguments that a stand-in printed at its first start, as soon as it did."""
    deadline = time.monotonic() + LIMIT
    while "\n" not in (text := log.read_text()):
        assert time.monotonic() < deadline, f"nothing is in {log}"
        time.sleep(0.1)
    line: list[str] = json.loads(text.splitlines()[0])
    return line
