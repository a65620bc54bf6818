"""The model of the scheduler's basic filters, rule by rule."""

from typing import Any

import msgspec
import pytest

from parley.api.builtin import Node, Pod
from parley.negotiation.fit import misfit, needs_of
from parley.negotiation.requests import amounts, requested


def pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


def node(labels: dict[str, str] | None = None, **spec: Any) -> Node:
    return msgspec.convert({"metadata": {"name": "a", "labels": labels or {}}, "spec": spec}, Node)


ROOM = amounts({"cpu": "4", "memory": "8Gi", "pods": "2"})
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


CASES = [
    ("nothing asked", pod(), node(), ""),
    ("cordoned", pod(), node(unschedulable=True), "cordoned"),
    (
        "cordoned and tolerated",
        pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        node(unschedulable=True),
        "",
    ),
    ("tainted", pod(), node(taints=[TAINT]), "taint gpu:NoSchedule, which the pod does not tolerate"),
    ("a soft taint", pod(), node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    ("tolerated by value", pod(tolerations=[{"key": "gpu", "value": "yes"}]), node(taints=[TAINT]), ""),
    (
        "tolerated for another value",
        pod(tolerations=[{"key": "gpu", "value": "no"}]),
        node(taints=[TAINT]),
        "taint gpu:NoSchedule, which the pod does not tolerate",
    ),
    ("tolerates everything", pod(tolerations=[{"operator": "Exists"}]), node(taints=[TAINT]), ""),
    ("selected", pod(nodeSelector={"zone": "1"}), node({"zone": "1"}), ""),
    (
        "not selected",
        pod(nodeSelector={"zone": "1"}),
        node(),
        "does not match the pod's node selector or affinity",
    ),
    (
        "affinity",
        pod(affinity=affinity({"key": "zone", "operator": "NotIn", "values": ["1"]})),
        node({"zone": "1"}),
        "does not match the pod's node selector or affinity",
    ),
    (
        "affinity holds",
        pod(affinity=affinity({"key": "n", "operator": "Gt", "values": ["3"]})),
        node({"n": "4"}),
        "",
    ),
    (
        "affinity with a bound that is no number",
        pod(affinity=affinity({"key": "n", "operator": "Lt", "values": ["x"]})),
        node({"n": "4"}),
        "does not match the pod's node selector or affinity",
    ),
    ("empty term", pod(affinity=affinity()), node(), "does not match the pod's node selector or affinity"),
    (
        "too little cpu",
        pod(containers=[{"resources": {"requests": {"cpu": "3500m"}}}]),
        node(),
        "too little cpu left",
    ),
    ("bound there by others", pod(nodeName="a"), node(unschedulable=True), ""),
    ("bound elsewhere by others", pod(nodeName="b"), node(), "the pod is bound to node b"),
]


@pytest.mark.parametrize(("wants", "has", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_misfit(wants: Pod, has: Node, reason: str) -> None:
    assert misfit(needs_of(wants), has, ROOM, amounts({"cpu": "1"}), pods=1) == reason


def test_a_node_has_room_for_so_many_pods() -> None:
    assert misfit(needs_of(pod()), node(), ROOM, {}, pods=2) == "no pod slots left"


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_requests_are_the_sum_of_containers_or_the_largest_init_container() -> None:
    assert requested(pod(containers=[container("1"), container("500m")])) == {"cpu": 1500}
    assert requested(pod(containers=[container("1")], initContainers=[container("3")])) == {"cpu": 3000}


def test_a_sidecar_counts_with_the_containers_and_with_later_init_containers() -> None:
    sidecar = container("1", restartPolicy="Always")
    spec = pod(containers=[container("1")], initContainers=[sidecar, container("2")])
    assert requested(spec) == {"cpu": 3000}


def test_overhead_limits_and_pod_level_requests_count() -> None:
    assert requested(pod(containers=[container("1")], overhead={"cpu": "250m"})) == {"cpu": 1250}
    assert requested(pod(containers=[{"resources": {"limits": {"cpu": "2"}}}])) == {"cpu": 2000}
    assert requested(pod(containers=[container("1")], resources={"requests": {"cpu": "5"}})) == {"cpu": 5000}
