"""`parley doctor` at a real API server: all well as installed; what is broken, and which right lacks, is named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.cluster.reader import ROOT, Reader
from tests.cluster.starting import DEPLOY
from tests.integration.doctor.conftest import RESOURCE_CLASS, apply, lease, resource_slice
from tests.support.pages import is_shown
from tests.support.shown import commands
from typer.testing import CliRunner, Result

from parley.cli.main import plugin
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster


def doctor(cluster: Cluster, *arguments: str, kubeconfig: object = None) -> Result:
    path = str(kubeconfig or cluster.kubeconfig)
    return CliRunner().invoke(plugin, ["doctor", "-o", "json", "--kubeconfig", path, *arguments])


def wrong(result: Result) -> dict[str, str]:
    """The findings that are not well: what each says, by the object that it is about, or else by its check."""
    items: list[dict[str, Any]] = orjson.loads(result.stdout)["items"]
    return {item["about"] or item["check"]: item["finding"] for item in items if item["severity"] != "ok"}


def test_what_was_installed_is_well(cluster: Cluster) -> None:
    result = doctor(cluster)

    assert (result.exit_code, wrong(result)) == (0, {}), result.output
    assert orjson.loads(result.stdout)["verdict"] == "ok"


def test_several_faults_are_each_named(cluster: Cluster) -> None:
    fault = '{"spec": {"failurePolicy": "Ignore"}}'
    cluster.kubectl("patch", "validatingadmissionpolicy", "mirrors.parley.dev", "--type=merge", "-p", fault)
    cluster.kubectl("delete", "validatingadmissionpolicybinding", "claim-marks.parley.dev")
    rules = '[{"op": "remove", "path": "/rules/0"}]'
    cluster.kubectl("patch", "clusterrole", "parley-kubelet", "--type=json", "-p", rules)
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties/scoreWeight/maximum"
    wider = f'[{{"op": "replace", "path": "{schema}", "value": 1000}}]'
    cluster.kubectl("patch", "crd", "resourceclasses.parley.dev", "--type=json", "-p", wider)
    cluster.kubectl("delete", "flowschema", "parley-leader-election")
    disk = {**RESOURCE_CLASS, "metadata": {"name": "disk"}, "driverName": "disk.example.com"}
    apply(cluster, disk)
    stale = '{"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}'
    cluster.kubectl("patch", "lease", "parley-controller", "-n", NAMESPACE, "--type=merge", "-p", stale)
    apply(cluster, resource_slice("node-9"))

    result = doctor(cluster)

    found = wrong(result)
    assert result.exit_code == 8
    assert found.pop("Lease parley-system/parley-controller").startswith("held by somebody_1, who renewed it ")
    assert found.pop("controller") == "no Deployment of namespace parley-system runs `parley controller`"
    assert found == {
        "ValidatingAdmissionPolicy mirrors.parley.dev": (
            "is not the one that was installed: spec.failurePolicy differs"
        ),
        "ValidatingAdmissionPolicyBinding claim-marks.parley.dev": "is missing: what it forbids is allowed",
        "ClusterRole parley-kubelet": "does not grant get resourceclaims.resource.k8s.io",
        "CustomResourceDefinition resourceclasses.parley.dev": (
            "is not the one of this version: schema.openAPIV3Schema.properties.scoreWeight.maximum differs"
        ),
        "FlowSchema parley-leader-election": "is missing: under load a leader may lose its Lease",
        "ResourceClass disk": "driver disk.example.com does not run: pods that request these classes wait",
        "ResourceSlice node-9-devices": (
            "is left over from node node-9, which does not exist: its devices still appear to exist"
        ),
    }


def test_a_deployment_whose_pods_do_not_start(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(DEPLOY / "workloads" / "controller.yaml"))

    result = doctor(cluster)

    assert result.exit_code == 8
    assert wrong(result)["Deployment parley-system/parley-controller"].startswith("0 of 2 pods are ready: ")


async def test_the_page_shows_what_is_said_of_a_leader_that_has_stopped(cluster: Cluster, tmp_path: Path) -> None:
    """The controllers' pods count as ready: no kubelet runs them here."""
    ((command, shown),) = commands((ROOT / "docs" / "doctor.md").read_text())
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(DEPLOY / "workloads" / "controller.yaml"))
    of_controller = ("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=parley-controller")
    cluster.kubectl("wait", "-n", NAMESPACE, "--for=jsonpath={.status.replicas}=2", "deployment/parley-controller")
    ready = '{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}'
    for name in cluster.kubectl("get", *of_controller, "-o", "name").split():
        cluster.kubectl("patch", name, "-n", NAMESPACE, "--subresource=status", "-p", ready)
    renewed = (datetime.now(UTC) - timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "parley-controller-7c9_1f", "leaseDurationSeconds": 15, "renewTime": renewed}
    apply(cluster, {**lease(), "spec": held})

    printed = await Reader.of(cluster, tmp_path)(command, status=8)

    assert is_shown(printed, shown.rstrip()), printed


def test_who_may_read_nothing_is_told_so(cluster: Cluster) -> None:
    result = doctor(cluster, kubeconfig=cluster.kubeconfig_for("somebody"))

    assert result.exit_code == 9
    words = 'could not be checked: customresourcedefinitions.apiextensions.k8s.io is forbidden: User "somebody" '
    assert wrong(result)["crds"].startswith(words)


def test_an_administrator_asks_as_somebody(cluster: Cluster) -> None:
    mine = doctor(cluster, kubeconfig=cluster.kubeconfig_for("somebody"))

    assert wrong(doctor(cluster, "--as", "somebody")) == wrong(mine)
    assert doctor(cluster, "--as", "somebody", "--as-group", "system:masters").exit_code == 0
