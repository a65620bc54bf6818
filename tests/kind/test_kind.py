"""Parley as a user has it: the image of deploy/Dockerfile in pods, by the chart, on nodes that kind made."""

import json
from collections.abc import Callable
from pathlib import Path

from parley_devcluster import versions

CHECKOUT = Path(__file__).parents[2]
READY = ("--for=condition=Ready", "--timeout=120s")

Kubectl = Callable[..., str]


def test_a_control_plane_and_two_workers_are_ready(kubectl: Kubectl) -> None:
    nodes = json.loads(kubectl("get", "nodes", "--output=json"))["items"]

    kubectl("wait", *READY, "nodes", "--all")
    assert [node["metadata"]["name"] for node in nodes] == [
        "parley-control-plane",
        "parley-worker",
        "parley-worker2",
    ]
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {versions.KUBERNETES}


def test_the_example_runs_with_its_device_and_with_a_share_of_another(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(CHECKOUT / "examples" / "gpu.yaml"))

    kubectl("wait", *READY, "pod/gpu", "pod/reader")

    assert "PARLEY_DEVICE_GPU" in kubectl("exec", "gpu", "--", "env")
    assert "GPU_2_UUID=node-2-gpu-2" in kubectl("exec", "reader", "--", "env")
    kubectl("delete", "-f", str(CHECKOUT / "examples" / "gpu.yaml"))


def test_the_controller_is_nobody_and_can_write_nothing(kubectl: Kubectl) -> None:
    attempt = "id -u; touch /tmp/x /opt/parley/x 2>&1 | grep -c Read-only"

    said = kubectl("exec", "-n", "parley-system", "deploy/parley-controller", "--", "sh", "-c", attempt)

    assert said.split() == ["65532", "2"]


def test_pods_reach_services_by_their_names_from_another_node(kubectl: Kubectl) -> None:
    kubectl("rollout", "status", "-n", "kube-system", "deploy/coredns", "--timeout=120s")
    kubectl(
        "run", "asker", "--image=parley.dev/busybox:dev", "--image-pull-policy=Never", "--command", "sleep", "600"
    )
    kubectl("wait", *READY, "pod/asker")

    answer = kubectl("exec", "asker", "--", "nslookup", "kubernetes.default.svc.cluster.local")

    assert "10.96.0.1" in answer
    kubectl("delete", "pod", "asker", "--now")
