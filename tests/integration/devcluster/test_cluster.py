"""A local cluster is like any other: pods run, accounts have their rights, parts fail and come back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.raw import raw

from parley.kube.client import NotFound
from parley_devcluster import Cluster, ClusterError, NodeOptions

pytestmark = pytest.mark.cluster


def pod(name: str, node: str, command: str = "echo hello; sleep 600") -> str:
    """The manifest of a pod on that node which ends at once when it is asked to."""
    script = f"trap 'exit 0' TERM; {{ {command}; }} & wait"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [
                    {
                        "name": "main",
                        "image": "parley.dev/busybox:dev",
                        "imagePullPolicy": "Never",
                        "command": ["sh", "-c", script],
                    }
                ],
            },
        }
    )


def eventually(condition: Callable[[], bool], limit: float = 120.0) -> bool:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def run_pod(cluster: Cluster, name: str, node: str) -> str:
    """Run the pod until it is ready; returns its container's id."""
    cluster.kubectl("apply", "-f", "-", stdin=pod(name, node))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    return container(cluster, name)


def container(cluster: Cluster, name: str) -> str:
    path = "jsonpath={.status.containerStatuses[0].containerID}"
    return cluster.kubectl("get", "pod", name, "-o", path)


def as_user(cluster: Cluster, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [cluster.directory / "bin" / "kubectl", "--kubeconfig", kubeconfig, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_pod_runs_on_each_node_and_its_output_can_be_read(cluster: Cluster, node: str) -> None:
    run_pod(cluster, f"on-{node}", node)

    assert cluster.kubectl("logs", f"on-{node}") == "hello\n"
    assert cluster.kubectl("exec", f"on-{node}", "--", "hostname") == f"on-{node}\n"
    (log,) = cluster.node(node).pod_logs_dir.glob(f"default_on-{node}_*/main/0.log")
    assert "hello" in log.read_text()


def test_nodes_have_their_labels_reservations_and_version(cluster: Cluster) -> None:
    node = raw(cluster).get("/api/v1/nodes/n2")

    assert node["metadata"]["labels"]["disk"] == "fast"
    assert node["status"]["capacity"]["cpu"] != node["status"]["allocatable"]["cpu"]
    assert node["status"]["nodeInfo"]["kubeletVersion"] == cluster.version
    assert "taints" not in node["spec"]


def test_a_user_has_the_rights_of_the_groups_in_its_certificate(cluster: Cluster) -> None:
    nobody = cluster.kubeconfig_for("nobody@example.org")
    administrator = cluster.kubeconfig_for("ada", ["system:masters"])

    refused = as_user(cluster, nobody, "get", "pods")

    assert 'User "nobody@example.org" cannot list resource "pods"' in refused.stderr
    assert as_user(cluster, administrator, "get", "pods").returncode == 0


def test_a_service_accounts_token_names_the_account(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "accounts")
    cluster.kubectl("create", "serviceaccount", "--namespace=accounts", "driver")

    kubeconfig = cluster.kubeconfig_for_service_account("accounts", "driver")

    told = as_user(cluster, kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert told.stdout == "system:serviceaccount:accounts:driver"


def test_a_service_account_that_does_not_exist_is_refused_after_a_while(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match='serviceaccounts "absent" not found'):
        cluster.kubeconfig_for_service_account("default", "absent")


def test_the_api_servers_metrics_can_be_read_by_the_admin(cluster: Cluster) -> None:
    assert "apiserver_request_total" in cluster.kubectl("get", "--raw", "/metrics")


def test_built_in_dra_is_served(cluster: Cluster) -> None:
    kinds = {entry["kind"] for entry in raw(cluster).get("/apis/resource.k8s.io/v1")["resources"]}

    assert {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"} <= kinds


@pytest.mark.parametrize("part", ["kubelet-n1", "containerd-n1"])
def test_a_pod_outlives_a_crash_of_the_nodes_programs(cluster: Cluster, part: str) -> None:
    before = run_pod(cluster, f"beside-{part}", "n1")

    cluster.component(part).kill()
    assert not cluster.component(part).running
    cluster.component(part).start()

    run_pod(cluster, f"after-{part}", "n1")
    assert container(cluster, f"beside-{part}") == before


@pytest.mark.parametrize("part", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_objects_outlive_a_crash_of_any_part_of_the_control_plane(cluster: Cluster, part: str) -> None:
    cluster.kubectl("create", "configmap", f"before-{part}")

    cluster.component(part).kill()
    cluster.component(part).start()

    def there() -> bool:
        try:
            return bool(cluster.kubectl("get", "configmap", f"before-{part}", "-o", "name"))
        except ClusterError:
            return False

    assert eventually(there)


def test_another_process_can_attach_to_the_cluster(cluster: Cluster) -> None:
    attached = Cluster.attach(cluster.directory)

    assert attached.nodes == cluster.nodes
    assert attached.component("kubelet-n1").pid == cluster.component("kubelet-n1").pid
    assert "n2" in attached.kubectl("get", "nodes", "-o", "name")


def test_a_failing_kubectl_tells_what_it_said(cluster: Cluster) -> None:
    with pytest.raises(
        ClusterError, match=r'^kubectl get pod absent failed \(exit status 1\): Error.*pods "absent" not found$'
    ):
        cluster.kubectl("get", "pod", "absent")


def test_names_that_the_cluster_does_not_have_are_told_with_those_it_has(cluster: Cluster) -> None:
    with pytest.raises(ClusterError) as component:
        cluster.component("kubelet")
    with pytest.raises(ClusterError) as node:
        cluster.node("n3")

    assert str(component.value) == (
        "component 'kubelet' is not part of the cluster, which has: etcd, kube-apiserver, kube-controller-manager,"
        " kube-scheduler, containerd-n1, kubelet-n1, containerd-n2, kubelet-n2"
    )
    assert str(node.value) == "node 'n3' is not a real node of the cluster, which has: n1, n2"


def test_fake_nodes_are_refused_where_they_would_become_unreachable(cluster: Cluster) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster.add_fake_nodes(1)

    assert str(caught.value) == (
        "fake nodes become unreachable after 40 s in this cluster: start it with fake_nodes or with"
        " node_lifecycle=False"
    )


def test_pods_are_placed_on_fake_nodes_beside_a_real_one(directory: Path) -> None:
    profile = {"profiles": [{"schedulerName": "second"}]}

    with Cluster.start(directory / "c", nodes=[NodeOptions("real")], fake_nodes=3) as cluster:
        more = cluster.add_fake_nodes(2, labels={"zone": "b"})
        cluster.kubectl("apply", "-f", "-", stdin=pod("on-fake", more[0]))
        cluster.add_scheduler("second-scheduler", profile)
        second = json.loads(pod("by-second", more[1]))
        second["spec"]["schedulerName"] = "second"
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(second))

        assert more == ["fake-3", "fake-4"]
        assert cluster.kubectl("get", "nodes", "-l", "zone=b", "-o", "name") == "node/fake-3\nnode/fake-4\n"
        for name, node in (("on-fake", "fake-3"), ("by-second", "fake-4")):
            cluster.kubectl("wait", "--for=condition=PodScheduled", f"pod/{name}", "--timeout=120s")
            assert cluster.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}") == node
        run_pod(cluster, "on-real", "real")
