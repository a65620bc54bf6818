"""`parley demo` with priorities: preempted pods, and priority classes."""

from pathlib import Path

import pytest
from tests.unit.cli.demonstration import demo, outcome

PREEMPTED = """
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: "1", memory: 1Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: low}
spec: {nodeName: a, containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: urgent}
spec: {priority: 100, containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]}
"""


def test_a_pod_that_was_preempted_is_gone_and_not_bound(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(PREEMPTED)

    pods, text = outcome(file), demo(file).stdout

    assert (pods["urgent"]["node"], pods["urgent"]["gone"]) == ("a", False)
    assert (pods["low"]["node"], pods["low"]["gone"]) == (None, True)
    assert "2 pods: 1 bound, 0 waiting, 1 gone" in text
    assert "default/low is gone" in text
    assert demo("--fail-on-waiting", file).exit_code == 10


CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: patient}
value: 200
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: -5
globalDefault: true
"""


@pytest.mark.parametrize(
    ("priority", "preempts"),
    [
        ("priorityClassName: urgent", True),
        ("priorityClassName: system-node-critical", True),
        ("priorityClassName: patient", False),
        ("priority: -10", False),
    ],
)
def test_pods_have_the_priority_of_their_class(tmp_path: Path, priority: str, preempts: bool) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(PREEMPTED.replace("priority: 100", priority) + "---" + CLASSES)

    assert outcome(file)["low"]["gone"] is preempts


def test_a_priority_class_that_is_in_no_file_is_refused_as_by_the_api_server(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(PREEMPTED.replace("priority: 100", "priorityClassName: urgent"))

    result = demo(file)

    assert result.exit_code == 2
    assert result.stderr.endswith(
        "Pod default/urgent: spec.priorityClassName: no PriorityClass 'urgent' is in the files: add it, or set "
        "spec.priority\n"
    )
