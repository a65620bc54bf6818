"""`parley simulate`: dumps of clusters taken over, changed and played on."""

import gc
from pathlib import Path

import orjson
import pytest
from tests.unit.cli.simulating import Objects, bound, outcome, simulate, stopped
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner

from parley.cli.main import app
from parley.simulate.virtual_time import run


def test_what_runs_stays_where_it_is_with_what_it_has(dump: Path, objects: Objects) -> None:
    pods = outcome(dump)

    assert set(pods) == {"first", "named", "waits"}
    assert {name: pods[name][0] for name in bound(objects)} == bound(objects)
    assert all(devices for node, devices in pods.values() if node)
    assert len(bound(objects)) == 2


def test_a_pod_less_is_a_device_more(dump: Path) -> None:
    before = outcome(dump)
    assert before["waits"] == (None, [])

    after = outcome(dump, "--remove", "pod/first")

    assert after["waits"] == before["first"]
    assert "first" not in after


def test_a_drained_node_loses_its_pods(dump: Path, objects: Objects) -> None:
    node = bound(objects)["first"]

    pods = outcome(dump, "--drain", node)

    assert node not in {pods["first"][0], pods["waits"][0]}


def test_a_node_more_takes_those_that_wait(dump: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(
        """
        apiVersion: v1
        kind: Node
        metadata: {name: c}
        ---
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata: {name: c-devices}
        spec:
          driver: device.parley.dev
          nodeName: c
          pool: {name: c, generation: 1}
          devices: [{name: gpu-0}]
        """.replace("\n        ", "\n")
    )

    assert outcome(dump, "--add", more)["waits"] == ("c", ["gpu-0"])


def test_a_node_less(dump: Path, objects: Objects) -> None:
    node = bound(objects)["first"]

    pods = outcome(dump, "--remove", f"node/{node}", "--remove", "pod/default/waits")

    assert set(pods) == {"first", "named"}
    assert pods["first"][0] != node


def test_a_device_less(dump: Path) -> None:
    pods = outcome(dump, "--remove", "device/b/gpu-0", "--remove", "device/b/gpu-1", "--drain", "b")

    assert [name for name, (node, _) in pods.items() if node == "b"] == []


def test_a_pod_with_scheduling_gates_waits_for_them(tmp_path: Path) -> None:
    async def a_cluster_with_a_gated_pod() -> Objects:
        world = World()
        world.start_kubernetes()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("gated", "one", schedulingGates=[{"name": "example.com/later"}])
        return await stopped(world)

    path = tmp_path / "dump.json"
    path.write_bytes(
        orjson.dumps({"apiVersion": "v1", "kind": "List", "items": run(a_cluster_with_a_gated_pod())})
    )

    assert "  default/gated  -  SchedulingGated\n" in simulate(path).stdout


def test_garbage_is_collected_as_before(dump: Path) -> None:
    before = gc.get_threshold()

    simulate(dump)

    assert gc.get_threshold() == before


LIMITED = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClass
metadata: {name: licence}
driverName: tokens.parley.dev
nodePart: None
parameters: {pool: 9}
limits:
- {namespaceSelector: {matchLabels: {tier: trial}}, claims: 1}
- {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}, claims: 2}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {resourceClassName: licence}}
---
apiVersion: v1
kind: Node
metadata: {name: a}
"""

POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: one, resourceClaimTemplateName: one}]
  containers: [{name: main, image: none, resources: {claims: [{name: one}]}}]
"""

TRIAL = """
---
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {tier: trial}}
"""


@pytest.mark.parametrize("command", ["simulate", "demo"])
@pytest.mark.parametrize(("namespace", "runs"), [(TRIAL, 1), ("", 2)])
def test_the_labels_of_namespaces_say_which_limit_counts(
    command: str, namespace: str, runs: int, tmp_path: Path
) -> None:
    """A namespace that is not in the files has the one label that each has."""
    path = tmp_path / "all.yaml"
    path.write_text(LIMITED + "".join(POD.replace("NAME", name) for name in "pqr") + namespace)

    result = CliRunner().invoke(app, [command, "-o", "json", str(path)])

    assert result.exit_code == 0, result.stderr
    pods = orjson.loads(result.stdout)["items"]
    assert sum(1 for pod in pods if pod["node"]) == runs
    assert all("LimitReached" in pod["reason"] for pod in pods if not pod["node"])
