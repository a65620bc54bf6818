"""What `parley simulate` prints: tables, JSON, names, progress; and what it says to wrong input."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.unit.cli.simulating import Objects, as_dump, outcome, simulate

from parley.cli.main import plugin


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
