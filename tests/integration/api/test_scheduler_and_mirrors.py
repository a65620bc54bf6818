"""The real scheduler and a mirror that is taken: what becomes of a second pod, and what its user reads."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.raw import raw

from parley.api.names import DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def node(installed: Cluster) -> Iterator[str]:
    """A node without a kubelet."""
    (name,) = installed.add_fake_nodes(1, prefix="mirror-test-")
    yield name
    raw(installed).request("DELETE", NODES.path(name=name))


def pod(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    body = {
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": [{"name": "device", "resourceClaimName": "scanner"}],
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "device"}]}}],
        },
    }
    made: dict[str, Any] = raw(cluster).post(PODS.path(namespace), body)
    return made


def wait_for_reason(cluster: Cluster, namespace: str, name: str, reason: str) -> str:
    """The message of the pod's condition PodScheduled, once it has that reason."""
    path = '{.status.conditions[?(@.type=="PodScheduled")].reason}'
    pod = f"pod/{name}"
    cluster.kubectl("wait", f"--for=jsonpath={path}={reason}", "--timeout=60s", "-n", namespace, pod)
    conditions = json.loads(cluster.kubectl("get", pod, "-n", namespace, "-o", "json"))["status"]["conditions"]
    return next(str(c["message"]) for c in conditions if c["type"] == "PodScheduled")


def mirror(cluster: Cluster, namespace: str, request: str) -> None:
    spec = {"devices": {"requests": [{"name": request, "exactly": {"deviceClassName": DEVICE_CLASS}}]}}
    raw(cluster).post(BUILTIN_CLAIMS.path(namespace), {"metadata": {"name": "scanner"}, "spec": spec})


def consumer(user: dict[str, Any]) -> dict[str, str]:
    return {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}


def allocate(cluster: Cluster, namespace: str, node: str, request: str, *users: dict[str, Any]) -> None:
    result = {"request": request, "driver": "device.parley.dev", "pool": node, "device": "gpu-0"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": terms},
        # without it the scheduler cannot reserve: it would add one, and an allocation cannot be changed
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    status = {"allocation": allocation, "reservedFor": [consumer(user) for user in users]}
    raw(cluster).patch(BUILTIN_CLAIMS.path(namespace, "scanner", "status"), {"status": status})


def users(cluster: Cluster, namespace: str) -> list[str]:
    status = raw(cluster).get(BUILTIN_CLAIMS.path(namespace, "scanner"))["status"]
    return sorted(consumer["name"] for consumer in status["reservedFor"])


def bound(cluster: Cluster, namespace: str, name: str, node: str) -> None:
    cluster.kubectl(
        "wait", f"--for=jsonpath={{.spec.nodeName}}={node}", "--timeout=60s", "-n", namespace, f"pod/{name}"
    )


def test_an_unallocated_mirror_tells_what_the_pod_waits_for(installed: Cluster, namespace: str, node: str) -> None:
    mirror(installed, namespace, "exclusive")
    pod(installed, namespace, "a")

    message = wait_for_reason(installed, namespace, "a", "Unschedulable")

    assert "device class being-negotiated.parley.dev does not exist" in message


def test_the_scheduler_cannot_let_a_second_pod_in(installed: Cluster, namespace: str, node: str) -> None:
    mirror(installed, namespace, "exclusive")
    allocate(installed, namespace, node, "exclusive", pod(installed, namespace, "a"))
    bound(installed, namespace, "a", node)

    pod(installed, namespace, "b")

    assert (
        f"ResourceClaim {namespace}/scanner is exclusive, and status.reservedFor would hold 2 pods (a, b): wait "
        "until the first pod is gone, or use a ResourceClass that has shareable: true."
        in wait_for_reason(installed, namespace, "b", "SchedulerError")
    )
    assert users(installed, namespace) == ["a"]


def test_the_scheduler_does_not_say_who_is_next_and_binds_whom_parley_reserves_it_for(
    installed: Cluster, namespace: str, node: str
) -> None:
    mirror(installed, namespace, "exclusive")
    allocate(installed, namespace, node, "exclusive")
    first, second = (pod(installed, namespace, name) for name in ("a", "b"))

    assert (
        f"ResourceClaim {namespace}/scanner is exclusive, and Parley decides which pod may use it: wait until "
        "it adds "
        "pod a to status.reservedFor" in wait_for_reason(installed, namespace, "a", "SchedulerError")
    )
    wait_for_reason(installed, namespace, "b", "SchedulerError")
    turn = {"status": {"reservedFor": [consumer(second)]}}
    raw(installed).patch(BUILTIN_CLAIMS.path(namespace, "scanner", "status"), turn)
    bound(installed, namespace, "b", node)
    assert users(installed, namespace) == ["b"]
    assert "nodeName" not in raw(installed).get(PODS.path(namespace, first["metadata"]["name"]))["spec"]


def test_the_scheduler_lets_a_second_pod_share(installed: Cluster, namespace: str, node: str) -> None:
    mirror(installed, namespace, "shareable")
    allocate(installed, namespace, node, "shareable", pod(installed, namespace, "a"))

    pod(installed, namespace, "b")
    bound(installed, namespace, "b", node)

    assert users(installed, namespace) == ["a", "b"]
