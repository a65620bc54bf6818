"""`parley simulate`: dumps of clusters taken over, changed and played on; and what it says to wrong input."""

import gc
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.unit.cli.serving import KINDS
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner, Result

from parley.cli.main import app, plugin
from parley.simulate.virtual_time import run

Objects = list[dict[str, Any]]


async def stopped(world: World) -> Objects:
    """What there is of the kinds that a dump has."""
    await world.stop()
    return [stored.body for kind in KINDS for stored in world.server.store.collection(kind).objects.values()]


async def keeping(pod: str) -> World:
    """A node with one device, which a claim has that is kept without users, and the pod that uses it."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class(whenUnused={"keepSeconds": 3600})
    await world.add_template("one")
    await world.add_claim("disk")
    await world.add_pod(pod, claims=["disk"])
    await world.settle()
    return world


def as_dump(path: Path, objects: Objects) -> None:
    """As kubectl lists them."""
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


async def a_cluster() -> Objects:
    """Two nodes with a device each in use, a claim of its own that outlives its pod, and a pod that waits."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_node("b", 2)
    await world.add_class()
    await world.add_template("one")
    await world.add_claim("mine")
    await world.add_claim("kept", mode="Immediate")
    await world.settle()
    await world.add_pod("first", "one")
    await world.add_pod("named", claims=["mine"])
    await world.settle()
    await world.add_pod("done", "one")
    await world.settle()
    await world.finish_pod("done")
    await world.add_pod("waits", "one")
    await world.settle()
    return await stopped(world)


@pytest.fixture(scope="module")
def objects() -> Objects:
    """As `kubectl get -o yaml` prints them: with everything that the server wrote."""
    fields = [{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]
    return [{**body, "metadata": {**body["metadata"], "managedFields": fields}} for body in run(a_cluster())]


@pytest.fixture
def dump(objects: Objects, tmp_path: Path) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def simulate(*arguments: object, command: Any = app) -> Result:
    return CliRunner().invoke(command, ["simulate", *map(str, arguments)])


def outcome(*arguments: object) -> dict[str, tuple[str | None, list[str]]]:
    result = simulate("-o", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    pods = orjson.loads(result.stdout)["items"]
    return {pod["name"]: (pod["node"], [d for claim in pod["claims"] for d in claim["devices"]]) for pod in pods}


def bound(objects: Objects) -> dict[str, str]:
    pods = [body for body in objects if body["kind"] == "Pod" and body.get("status", {}).get("phase") == "Running"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}


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


def test_what_users_wrote_into_parameters_changes_nothing_in_the_output(dump: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    spec = {"resourceClassName": "gpu", "parameters": {"[/bold]\x1b[2J": 1}}
    template = {"metadata": {"name": "odd"}, "spec": {"spec": spec}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "odd"}]
    pod = {"metadata": {"name": "odd"}, "spec": {"resourceClaims": claims, "containers": [using("gpu")]}}
    kinds = [("parley.dev/v1alpha1", "ResourceClaimTemplate", template), ("v1", "Pod", pod)]
    more.write_text(yaml.safe_dump_all({"apiVersion": v, "kind": kind, **body} for v, kind, body in kinds))

    result = simulate(dump, "--add", more)

    assert result.exit_code == 0, result.stderr
    assert "[/bold]\\x1b[2J=1 is not a parameter" in result.stdout


def using(entry: str) -> dict[str, Any]:
    return {"name": "main", "image": "none", "resources": {"claims": [{"name": entry}]}}


def test_as_a_table(dump: Path) -> None:
    result = simulate(dump, command=plugin)

    lines = result.stdout.splitlines()
    assert lines[0] == "3 pods: 2 bound, 1 waiting"
    assert lines[-1].startswith("default/waits: NothingViable: 0 of 2 nodes are available: ")
    assert (
        result.stderr == "left out, as nothing depends on it here: 1 PodScheduling\n" or "Event" in result.stderr
    )


def test_json_is_read_faster_and_is_the_same(dump: Path, objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    as_dump(path, objects)

    assert outcome(path) == outcome(dump)


def test_an_immediate_claim_that_nobody_uses_keeps_what_it_has(dump: Path, objects: Objects) -> None:
    held = [body for body in objects if body["kind"] == "ResourceClaim" and body["metadata"]["name"] == "kept"]
    conditions = [one for body in held for one in body.get("status", {}).get("conditions", ())]
    (where,) = [one["message"] for one in conditions if one["type"] == "Allocated"]
    assert where.startswith("allocated on node ")
    (kept,) = orjson.loads(simulate(dump, "-o", "json").stdout)["claims"]
    assert (kept["name"], kept["allocated"]) == ("kept", where)

    assert outcome(dump)["waits"] == (None, [])


def test_a_claim_that_is_kept_without_users_keeps_what_it_has(tmp_path: Path) -> None:
    async def a_cluster_that_keeps() -> Objects:
        world = await keeping("ran")
        await world.delete_pod("ran")
        await world.settle()
        await world.add_node("b", 1)
        for name in ("first", "second"):
            await world.add_pod(name, "one")
        await world.add_pod("next", claims=["disk"])
        return await stopped(world)

    path = tmp_path / "dump.json"
    as_dump(path, run(a_cluster_that_keeps()))

    pods = outcome(path)

    assert pods["next"] == ("a", ["gpu-0"])
    assert sorted(pods[name][0] or "" for name in ("first", "second")) == ["", "b"]


def test_a_claim_that_its_class_keeps_stays_when_its_pod_is_removed_or_drained(tmp_path: Path) -> None:
    async def a_cluster_that_keeps() -> Objects:
        world = await keeping("runs")
        await world.add_pod("waits", "one")
        await world.settle()
        await world.add_node("b")
        return await stopped(world)

    path = tmp_path / "dump.json"
    as_dump(path, run(a_cluster_that_keeps()))

    assert outcome(path, "--remove", "pod/runs") == {"waits": (None, [])}
    assert outcome(path, "--drain", "a")["runs"] == (None, [])
    assert "default/runs: ClaimStranded: " in simulate(path, "--drain", "a").stdout


@pytest.mark.parametrize(
    ("ready", "taint", "ends"),
    [
        ("True", "example.com/a", True),
        ("Unknown", "node.kubernetes.io/unreachable", False),
        ("Unknown", "node.kubernetes.io/out-of-service", True),
    ],
)
def test_a_pod_that_is_being_deleted_holds_nothing_unless_its_node_does_not_answer(
    dump: Path, objects: Objects, tmp_path: Path, ready: str, taint: str, ends: bool
) -> None:
    path, (node, devices) = tmp_path / "dump.json", outcome(dump)["first"]
    changed = deepcopy(objects)
    for body in changed:
        if body["kind"] == "Pod" and body["metadata"]["name"] == "first":
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if body["kind"] == "Pod" and body["metadata"]["name"] == "waits":
            body["spec"]["tolerations"] = [{"operator": "Exists"}]
        if body["kind"] == "Node" and body["metadata"]["name"] == node:
            body["status"]["conditions"] = [{"type": "Ready", "status": ready}]
            body["spec"] = {"taints": [{"key": taint, "effect": "NoSchedule"}]}
    as_dump(path, changed)

    pods = outcome(path)

    assert pods["waits"] == ((node, devices) if ends else (None, []))
    assert pods.get("first") == (None if ends else (node, devices))


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


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--remove", "pod/other"), "there is no Pod 'default/other': write pod/NAMESPACE/NAME, pod/NAME, "),
        (("--remove", "node/z"), "there is no Node 'z': write pod/NAMESPACE/NAME, "),
        (("--drain", "z"), "there is no Node 'z': write the name of a node\n"),
        (("--remove", "device/a/gpu-9"), "no ResourceSlice of node 'a' has a device 'gpu-9': "),
        (("--remove", "claim/x"), "--remove 'claim/x' is not understood: "),
        (("--add", "/nowhere.yaml"), "/nowhere.yaml: cannot be read: "),
    ],
)
def test_what_is_not_there(dump: Path, arguments: tuple[str, ...], fault: str) -> None:
    result = simulate(dump, *arguments)

    assert result.exit_code == 2
    assert f"error: {fault}" in result.stderr


def test_garbage_is_collected_as_before(dump: Path) -> None:
    before = gc.get_threshold()

    simulate(dump)

    assert gc.get_threshold() == before


def test_progress_is_told_while_it_takes(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.cli.simulate._EVERY", 0.001)

    result = simulate(dump, "-o", "json")

    told = [line for line in result.stderr.splitlines() if line.startswith("simulating: ")]
    assert told
    assert set(told) <= {f"simulating: {number} of 3 pods are bound" for number in range(3)}


def test_the_example_on_the_page_is_real(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    page = (root / "docs" / "explain.md").read_text()
    shown = page.partition("$ parley simulate examples/*.yaml --drain node-1\n")[2].partition("```")[0]

    printed = simulate(*sorted(Path("examples").glob("*.yaml")), "--drain", "node-1").stdout

    assert shown
    assert printed.startswith(shown)


def test_what_a_node_still_has_prepared_is_not_handed_out(dump: Path, objects: Objects, tmp_path: Path) -> None:
    """A pod was deleted by force; its device is free when its node has said so, or is gone."""
    (mirror,) = (
        body
        for body in objects
        if body["kind"] == "ResourceClaim" and body["metadata"]["name"].startswith("first-")
    )
    node = bound(objects)["first"]
    allocation = mirror["status"]["allocation"]
    held = [{"pool": one["pool"], "device": one["device"]} for one in allocation["devices"]["results"]]
    spec = {
        "claim": {"namespace": "default", "name": mirror["metadata"]["name"], "uid": mirror["metadata"]["uid"]},
        "nodeName": node,
        "driverName": "device.parley.dev",
        "holdingUid": mirror["metadata"]["uid"],
        "resourceClassName": "gpu",
        "allocation": {"handles": [{"driverName": "device.parley.dev", "devices": held}]},
    }
    release = {
        "apiVersion": "parley.dev/v1alpha1",
        "kind": "ClaimRelease",
        "metadata": {"name": "left"},
        "spec": spec,
        "status": {"allocationCleared": True},
    }
    of_first = {mirror["metadata"]["name"], "first"}
    rest = [body for body in objects if body["metadata"]["name"] not in of_first]
    without, owing = tmp_path / "without.json", tmp_path / "owing.json"
    as_dump(without, rest)
    as_dump(owing, [*rest, release])

    assert outcome(without)["waits"][0] == node
    assert outcome(owing)["waits"] == (None, [])


def test_a_script_can_tell_that_a_pod_waits(dump: Path) -> None:
    assert simulate(dump, "--fail-on-waiting").exit_code == 10
    assert simulate(dump).exit_code == 0


def test_rows_and_names_of_what_was_simulated(dump: Path) -> None:
    names = [f"pod/{pod['name']}" for pod in orjson.loads(simulate("-o", "json", dump).stdout)["items"]]
    bare = simulate("-o", "wide", "--no-headers", dump).stdout.partition("\n\n")[0].splitlines()

    assert simulate("-o", "name", dump).stdout.split() == [*names, "resourceclaim.parley.dev/kept"]
    assert simulate("-o", "wide", dump).stdout.splitlines()[0].split() == [
        "NAMESPACE", "POD", "NODE", "HOLDS", "REASON",
    ]  # fmt: skip
    assert [f"pod/{line.split()[1]}" for line in bare] == names


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
