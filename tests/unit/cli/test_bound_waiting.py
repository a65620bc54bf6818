"""`demo` and `simulate` with a pod that its user bound to a node where its device is in use: it waits there."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from parley.api.exits import Exit
from parley.cli.main import app

MANIFESTS = """
apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a-devices}
spec: {driver: device.parley.dev, nodeName: a, pool: {name: a, generation: 1}, devices: [{name: gpu-0}]}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClass
metadata: {name: gpu}
driverName: device.parley.dev
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {resourceClassName: gpu}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: a
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: one}}]
  containers: [{{name: main, image: none, resources: {{claims: [{{name: gpu}}]}}}}]
"""
ENDS = "annotations: {simulate.parley.dev/run-seconds: '20'}"
WHY = "NothingViable: the pod is bound to node a: claim gpu: 0 of 1 device free, 1 wanted."


@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_a_bound_pod_without_its_device_counts_as_waiting(tmp_path: Path, command: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(MANIFESTS + POD.format(name="first") + POD.format(name="second"))

    text = CliRunner().invoke(app, [command, str(file), "--fail-on-waiting"])
    data = CliRunner().invoke(app, [command, str(file), "-o", "json"])

    assert text.exit_code == Exit.WAITING
    assert "2 pods: 1 bound, 1 waiting" in text.stdout
    assert WHY in text.stdout
    (waiting,) = [pod for pod in orjson.loads(data.stdout)["items"] if pod["reason"]]
    assert f"  default/{waiting['name']:<6}  a  NothingViable" in text.stdout.splitlines()
    assert (waiting["node"], waiting["reason"].startswith(WHY)) == ("a", True)


def test_a_pod_that_has_waited_on_its_node_and_runs_now_is_bound(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    pods = [POD.format(name=name) for name in ("first", "second")]
    ending = [pod.replace("metadata: {", f"metadata: {{{ENDS}, ") for pod in pods]
    file.write_text(MANIFESTS + "".join(pod.replace("spec:", "spec:\n  restartPolicy: Never") for pod in ending))

    result = CliRunner().invoke(app, ["demo", str(file), "--fail-on-waiting"])

    assert (result.exit_code, "2 pods: 2 bound, 0 waiting" in result.stdout) == (0, True), result.stdout
