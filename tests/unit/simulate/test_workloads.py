"""Workloads become the pods that their controllers would make."""

from typing import Any

import pytest

from parley.api.resources import NODES, PODS, Resource
from parley.simulate.objects import Manifest
from parley.simulate.workloads import DAEMON_SETS, DEPLOYMENTS, JOBS, STATEFUL_SETS, expanded

LABELS = {"app": "web"}


def workload(resource: Resource[Any], pod: Any = None, status: Any = None, **spec: Any) -> Manifest:
    selector = {} if resource == JOBS else {"selector": {"matchLabels": LABELS}}
    template = {"metadata": {"labels": LABELS}, "spec": pod or {"containers": [{"name": "main"}]}}
    body = {
        "metadata": {"name": "web"},
        "spec": {**selector, "template": template, **spec},
        "status": status or {},
    }
    return Manifest("a.yaml", resource, "team", "web", body)


def pod(name: str, namespace: str = "team", node: str = "", phase: str = "Running", **labels: str) -> Manifest:
    meta = {"name": name, "labels": {**LABELS, **labels}}
    body = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return Manifest("a.yaml", PODS, namespace, name, body)


def node(name: str, *taints: Any, **labels: str) -> Manifest:
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}
    return Manifest("a.yaml", NODES, None, name, body)


def made(*manifests: Manifest) -> list[str]:
    """The names of the pods that were not there."""
    return [one.name for one in expanded(manifests) if one.resource == PODS and one not in manifests]


@pytest.mark.parametrize(
    ("manifests", "names"),
    [
        ([workload(DEPLOYMENTS)], ["web-1"]),
        ([workload(DEPLOYMENTS, replicas=3)], ["web-1", "web-2", "web-3"]),
        ([workload(DEPLOYMENTS, replicas=0)], []),
        ([workload(DEPLOYMENTS, replicas=None)], ["web-1"]),
        ([workload(DEPLOYMENTS, replicas=2), pod("web-7d9f-x2", hash="7d9f")], ["web-1"]),
        ([workload(DEPLOYMENTS), pod("web-7d9f-x2", namespace="other")], ["web-1"]),
        ([workload(DEPLOYMENTS), pod("web-7d9f-x2", phase="Failed")], ["web-1"]),
        ([workload(STATEFUL_SETS, replicas=3), pod("web-1")], ["web-0", "web-2"]),
        ([workload(STATEFUL_SETS, replicas=2, ordinals={"start": 5})], ["web-5", "web-6"]),
        ([workload(STATEFUL_SETS, replicas=None, ordinals={"start": None})], ["web-0"]),
        ([workload(JOBS)], ["web-1"]),
        ([workload(JOBS, completions=5, parallelism=2)], ["web-1", "web-2"]),
        ([workload(JOBS, completions=None, parallelism=None)], ["web-1"]),
        ([workload(JOBS, completions=5, parallelism=3, status={"succeeded": 4})], ["web-1"]),
        ([workload(JOBS, completions=1, status={"succeeded": 1})], []),
        ([workload(JOBS, suspend=True)], []),
        ([workload(DAEMON_SETS), node("a"), node("b")], ["web-a", "web-b"]),
        ([workload(DAEMON_SETS), node("a"), node("b"), pod("web-x", node="a")], ["web-b"]),
        ([workload(DAEMON_SETS, {"nodeSelector": {"gpu": "yes"}}), node("a"), node("b", gpu="yes")], ["web-b"]),
        ([workload(DAEMON_SETS), node("a", {"key": "gpu", "effect": "NoSchedule"}), node("b")], ["web-b"]),
        (
            [
                workload(DAEMON_SETS),
                node("a", {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
            ],
            ["web-a"],
        ),
    ],
)
def test_the_pods_that_lack(manifests: list[Manifest], names: list[str]) -> None:
    assert made(*manifests) == names


def test_a_pod_is_as_the_template_says() -> None:
    (found,) = expanded([workload(DEPLOYMENTS, {"containers": [{"name": "c"}]})])

    assert (found.source, found.resource, found.namespace) == ("a.yaml", PODS, "team")
    assert found.body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": LABELS, "name": "web-1", "namespace": "team"},
        "spec": {"containers": [{"name": "c"}]},
    }


def test_a_pod_of_a_daemon_set_is_for_its_node_alone() -> None:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template = {"affinity": {"nodeAffinity": required}}

    (found,) = (
        one for one in expanded([workload(DAEMON_SETS, template), node("a", gpu="x")]) if one.resource == PODS
    )

    fields = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    affinity = found.body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"] == [{**terms[0], "matchFields": fields}]
