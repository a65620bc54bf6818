"""`parley demo`: the examples' outcome, as text and as JSON, and what it says to wrong input."""

import re
from pathlib import Path

import orjson
import pytest
from tests.unit.cli.demonstration import demo, outcome
from typer.testing import CliRunner, Result

from parley.cli.main import app

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.relative_to(ROOT) for path in (ROOT / "examples").glob("*.yaml"))
GOLDEN = Path(__file__).parent / "demo.txt"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(ROOT)
    return EXAMPLES


def test_the_examples_as_text(examples: list[Path]) -> None:
    """To accept a change: .venv/bin/parley demo examples/*.yaml > tests/unit/cli/demo.txt"""
    assert demo(*examples).stdout == GOLDEN.read_text()


def test_the_claim_that_stands_for_a_pods_own_is_no_claim_that_no_pod_names(tmp_path: Path) -> None:
    given = tmp_path / "pod.yaml"
    given.write_text(STANDALONE)

    result = demo(given)

    assert "driver seats.example.com: start it" in result.stdout
    assert result.stdout.endswith("1 pod: 0 bound, 1 waiting\n  default/guest  -  DriverNotAnswering\n")


STANDALONE = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "9"}}}
---
{apiVersion: parley.dev/v1alpha1, kind: ResourceClass, metadata: {name: seat}, driverName: seats.example.com}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: seat}
spec: {spec: {resourceClassName: seat}}
---
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  resourceClaims: [{name: seat, resourceClaimTemplateName: seat}]
  containers: [{name: main, resources: {claims: [{name: seat}]}}]
"""


def test_the_examples_as_json(examples: list[Path]) -> None:
    pods = outcome(*examples)

    assert list(pods) == ["gpu", "reader", "pipeline", "first", "second", "giant"]
    gpu = pods["gpu"]
    assert re.fullmatch("gpu-gpu-[a-z0-9]{5}", gpu["claims"][0].pop("claim"))
    assert gpu == {
        "namespace": "default",
        "name": "gpu",
        "node": "node-1",
        "gone": False,
        "reason": "",
        "claims": [{"name": "gpu", "driver": "device.parley.dev", "devices": ["gpu-0"]}],
    }
    assert pods["reader"]["claims"] == [
        {"name": "scanner", "claim": "scanner", "driver": "device.parley.dev", "devices": ["gpu-2"]}
    ]
    assert pods["pipeline"]["node"] == "node-2"
    assert [claim["devices"] for claim in pods["pipeline"]["claims"]] == [["gpu-0"], ["gpu-2"]]


def test_a_pod_that_waits_has_no_node_but_a_reason(examples: list[Path]) -> None:
    giant = outcome(*examples)["giant"]

    assert giant["node"] is None
    assert giant["reason"] == (
        "NothingViable: 0 of 3 nodes are available: node node-1: claim gpus: 1 of 2 devices of model a100 free, "
        "3 wanted; node node-2: claim gpus: 0 of 2 devices of model a100 free, 3 wanted; "
        "node node-3: the node plugin of driver device.parley.dev does not run there. "
        "Remedy: free resources, request less, or add nodes that have what is requested"
    )


def test_a_claim_of_a_class_that_does_not_exist_is_the_controllers_to_explain(tmp_path: Path) -> None:
    text = (
        (ROOT / "examples" / "gpu.yaml").read_text().replace("resourceClassName: gpu", "resourceClassName: gpus")
    )
    (tmp_path / "gpu.yaml").write_text(text)

    pods = outcome(tmp_path / "gpu.yaml", ROOT / "examples" / "nodes.yaml")

    assert {pod["reason"].partition(":")[0] for pod in pods.values()} == {"ClassNotFound"}


def test_pods_of_a_second_scheduler_are_placed_through_the_extender(examples: list[Path], tmp_path: Path) -> None:
    grace = "  terminationGracePeriodSeconds: 1\n"
    pod = (ROOT / "examples/gpu.yaml").read_text().replace(grace, f"{grace}  schedulerName: parley\n")
    manifest = tmp_path / "gpu.yaml"
    manifest.write_text(pod)
    nodes = next(path for path in examples if path.name == "nodes.yaml")

    assert outcome(nodes, manifest)["gpu"]["node"] == "node-1"
    assert outcome(nodes, manifest, "--scheduler-name=another")["gpu"]["node"] is None


NO_PODS = (
    "There are no pods in the input: add one whose spec.resourceClaims names a ResourceClaim or "
    "ResourceClaimTemplate, or a workload with such pods.\n"
)


def test_without_pods_it_says_what_is_missing(examples: list[Path]) -> None:
    result = demo("examples/nodes.yaml")

    assert result.stdout == "0 pods: 0 bound, 0 waiting\n"
    assert result.stderr == NO_PODS
    assert demo("examples/nodes.yaml", "examples/gpu.yaml").stderr == ""


CLAIMS = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClass
metadata: {name: gpu}
driverName: device.parley.dev
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: now}
spec: {resourceClassName: gpu, allocationMode: Immediate, parameters: {model: t4}}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: later}
spec: {resourceClassName: gpu}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: misspelt}
spec: {resourceClassName: gpus, allocationMode: Immediate}
"""


@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_claims_that_no_pod_names_are_shown(examples: list[Path], tmp_path: Path, command: str) -> None:
    claims = tmp_path / "claims.yaml"
    claims.write_text(CLAIMS)

    def asked(*options: str) -> Result:
        return CliRunner().invoke(app, [command, *options, "examples/nodes.yaml", str(claims)])

    first = "WaitForFirstConsumer: to be allocated for the first pod that uses the claim"
    missing = (
        "ClassNotFound: claim default/misspelt: spec.resourceClassName='gpus' does not exist: "
        "create that ResourceClass"
    )
    assert asked().stdout == (
        "0 pods: 0 bound, 0 waiting\n"
        "\n"
        "3 claims that no pod names: 1 allocated, 2 waiting\n"
        f"  default/later     {first}\n"
        f"  default/misspelt  {missing}\n"
        "  default/now       allocated on node node-2: gpu-2\n"
    )
    assert asked().stderr == NO_PODS
    assert asked("-o", "name").stdout.split() == [
        f"resourceclaim.parley.dev/{name}" for name in ("later", "misspelt", "now")
    ]
    assert asked("-o", "wide").stdout.splitlines()[-1].split("  ")[-1] == "-"
    data = orjson.loads(asked("-o", "json").stdout)
    assert data["items"] == []
    assert data["claims"] == [
        {"namespace": "default", "name": "later", "class": "gpu", "allocated": "", "devices": [], "reason": first},
        {
            "namespace": "default",
            "name": "misspelt",
            "class": "gpus",
            "allocated": "",
            "devices": [],
            "reason": missing,
        },
        {
            "namespace": "default",
            "name": "now",
            "class": "gpu",
            "allocated": "allocated on node node-2",
            "devices": ["gpu-2"],
            "reason": "",
        },
    ]


def test_pods_and_the_claims_that_none_of_them_names_are_two_tables(examples: list[Path], tmp_path: Path) -> None:
    claims = tmp_path / "claims.yaml"
    claims.write_text(CLAIMS.partition("---")[2])

    result = demo("examples/nodes.yaml", "examples/gpu.yaml", claims, "-o", "wide")

    pods, _, unnamed = result.stdout.partition("\n\n")
    assert [line.split()[1] for line in pods.splitlines()] == ["POD", "gpu", "reader"]
    assert [line.split()[1] for line in unnamed.splitlines()] == ["CLAIM", "later", "misspelt", "now"]


PARAMETERS = Path("examples/parameters/size.yaml")


def test_parameters_come_from_the_config_map_that_a_template_names(examples: list[Path], tmp_path: Path) -> None:
    assert PARAMETERS not in examples
    pod = outcome("examples/nodes.yaml", "examples/gpu.yaml", PARAMETERS)["sized"]
    assert len(pod["claims"][0]["devices"]) == 1

    changed = tmp_path / "changed.yaml"
    changed.write_text(PARAMETERS.read_text().replace("count: 1", "count: 9"))
    pod = outcome("examples/nodes.yaml", "examples/gpu.yaml", changed)["sized"]
    assert pod["reason"].startswith("NothingViable")

    _, _, rest = PARAMETERS.read_text().partition("---\n")
    changed.write_text(rest)
    pod = outcome("examples/nodes.yaml", "examples/gpu.yaml", changed)["sized"]
    assert pod["reason"] == (
        "ParametersNotFound: parametersRef of template default/sized-gpu: ConfigMap default/size does not exist: "
        "create it"
    )


def test_a_config_map_whose_values_are_no_texts_is_refused_as_by_kubectl(tmp_path: Path) -> None:
    wrong = tmp_path / "a.yaml"
    wrong.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {parameters: {count: 1}}}")
    result = demo(wrong)
    assert result.exit_code == 2
    assert "data[...]={'parameters': {'count': 1}}: expected str, got object" in result.stderr


def test_wrong_manifests_are_told_on_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\nkind: Pod\n")

    result = demo("a.yaml", "b.yaml")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "error: a.yaml, document 1: kind 'Secret' (v1) is not known to the simulated cluster; it knows Namespace, "
        "Node, ResourceSlice, ConfigMap, PriorityClass, ResourceClass, ResourceClaimTemplate, ResourceClaim, "
        "Deployment, StatefulSet, DaemonSet, Job, Pod\n"
        "error: a.yaml, document 2: apiVersion is missing; write for example apiVersion: parley.dev/v1alpha1\n"
        "error: b.yaml: cannot be read: No such file or directory; give the path of a YAML file\n"
    )


def test_without_files_it_asks_for_some() -> None:
    assert demo().exit_code == 2


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: trainers}
spec:
  replicas: 3
  selector: {matchLabels: {app: trainers}}
  template:
    metadata: {labels: {app: trainers}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
      containers: [{name: main, resources: {claims: [{name: gpu}]}}]
"""


def test_a_deployment_on_standard_input_becomes_its_pods(examples: list[Path]) -> None:
    gpu = (ROOT / "examples" / "gpu.yaml").read_text()
    result = CliRunner().invoke(
        app, ["demo", "examples/nodes.yaml", "-", "-o", "json"], input=f"{gpu}---{DEPLOYMENT}"
    )

    assert result.exit_code == 0, result.stderr
    data = orjson.loads(result.stdout)
    assert (data["apiVersion"], data["kind"]) == ("cli.parley.dev/v1alpha1", "PodOutcomeList")
    assert {pod["name"] for pod in data["items"]} == {"gpu", "reader", "trainers-1", "trainers-2", "trainers-3"}
    assert {pod["name"] for pod in data["items"] if pod["node"]} >= {"gpu", "trainers-1"}


def test_a_claim_that_no_container_uses_is_warned_of_beside_what_becomes_of_the_pod(tmp_path: Path) -> None:
    idle = tmp_path / "idle.yaml"
    gpu = (ROOT / "examples" / "gpu.yaml").read_text()
    idle.write_text(gpu.replace("      claims: [{name: gpu}]\n", ""))

    lines = demo(str(ROOT / "examples/nodes.yaml"), str(idle)).stdout.splitlines()

    assert lines[0].startswith("default/gpu is bound to node-")
    (warning,) = [line for line in lines if "warning: " in line]
    assert (
        warning.split("s ", 1)[1]
        .strip()
        .startswith("warning: no container uses claim gpu, so no container gets what it holds")
    )
    assert "waits: ClaimUnused" not in "\n".join(lines)


def test_a_script_can_tell_that_a_pod_waits(examples: list[Path]) -> None:
    assert demo("--fail-on-waiting", *examples).exit_code == 10
    assert demo("--fail-on-waiting", "examples/nodes.yaml", "examples/gpu.yaml").exit_code == 0


def test_a_row_for_each_pod_and_names_as_kubectl_prints_them(tmp_path: Path) -> None:
    wanting = tmp_path / "wanting.yaml"
    wanting.write_text(
        (ROOT / "examples/gpu.yaml").read_text()
        + "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: plain, namespace: other}\n"
        "spec: {nodeSelector: {no: such}, containers: [{name: main, image: busybox}]}\n"
    )
    files = (ROOT / "examples/nodes.yaml", wanting)

    data = {pod["name"]: pod for pod in orjson.loads(demo("-o", "json", *files).stdout)["items"]}
    wide, bare = demo("-o", "wide", *files), demo("-o", "wide", "--no-headers", *files)
    rows = [re.split(r" {2,}", line) for line in wide.stdout.splitlines()]

    assert rows[0] == ["NAMESPACE", "POD", "NODE", "HOLDS", "REASON"]
    assert ["default", "gpu", data["gpu"]["node"], data["gpu"]["claims"][0]["devices"][0], "-"] in rows
    assert ["other", "plain", "-", "-", data["plain"]["reason"]] in rows
    assert [re.split(r" {2,}", line) for line in bare.stdout.splitlines()] == rows[1:]
    assert demo("-o", "name", *files).stdout.split() == [f"pod/{name}" for name in data]
