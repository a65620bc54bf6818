"""The kustomizations: each can be built, and the API server takes what comes out."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).parents[3] / "deploy"
WORKLOADS = {"Deployment", "DaemonSet", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"}


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
    crds = DEPLOY.parent / "crds"
    told = installed.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(crds))

    assert told.count("customresourcedefinition") == len([*crds.glob("*.yaml")])


def test_a_kustomization_of_ones_own_names_the_image_and_the_devices(installed: Cluster, tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "install.md").read_text()
    for folder in ("deploy", "crds"):
        shutil.copytree(DEPLOY.parent / folder, tmp_path / folder)
    (tmp_path / "own").mkdir()
    (block,) = re.findall(r"```yaml\n(# own/kustomization.yaml.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own" / "kustomization.yaml").write_text(block)
    (tmp_path / "own" / "devices.yaml").write_text("devices: [{glob: /dev/fuse*, model: fuse}]\n")

    built = list(yaml.safe_load_all(installed.kubectl("kustomize", str(tmp_path / "own"))))

    pods = [it["spec"]["template"]["spec"] for it in built if it["kind"] in ("Deployment", "DaemonSet")]
    images = {container["image"].rpartition(":")[0] for spec in pods for container in spec["containers"]}
    assert images == {"registry.example.com/parley"}
    (configuration,) = (it for it in built if it["kind"] == "ConfigMap")
    assert "glob: /dev/fuse*" in configuration["data"]["devices.yaml"]


def test_the_node_plugin_with_hooks_of_ones_own_as_the_page_about_installing_has_it(
    installed: Cluster, tmp_path: Path
) -> None:
    page = (DEPLOY.parent / "docs" / "install.md").read_text()
    for folder in ("deploy", "crds"):
        shutil.copytree(DEPLOY.parent / folder, tmp_path / folder)
    (tmp_path / "own").mkdir()
    for name in ("kustomization.yaml", "devices.yaml"):
        (block,) = re.findall(rf"```yaml\n(# {name}.*?)```", page, flags=re.DOTALL)
        (tmp_path / "own" / name).write_text(block)

    built = {
        (document["kind"], document["metadata"]["name"]): document
        for document in yaml.safe_load_all(installed.kubectl("kustomize", str(tmp_path / "own")))
    }

    spec = built["DaemonSet", "parley-kubelet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.example.com/parley-with-hooks:1"
    assert container["args"][-2:] == ["--driver=devices", "--driver=scratch_node:ScratchNode"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    rule = built["ClusterRole", "parley-kubelet"]["rules"][-1]
    assert (rule["verbs"], rule["resourceNames"]) == (["publish"], ["scratch.example.com"])
    (configuration,) = [name for kind, name in built if kind == "ConfigMap"]
    assert "scratch.example.com" in built["ConfigMap", configuration]["data"]["devices.yaml"]
    assert configuration in {volume.get("configMap", {}).get("name") for volume in spec["volumes"]}
    told = installed.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(tmp_path / "own"))
    )
    assert told.count("(server dry run)") == len(built)
