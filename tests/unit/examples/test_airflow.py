"""The Airflow pipelines' claims and pods, as the simulated cluster reads them.

Airflow is not installed here: stand-ins record what its operators are given.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from parley.simulate.manifests import read

FOLDER = Path(__file__).parents[3] / "examples" / "airflow"
NODES = FOLDER.parent / "pipeline" / "nodes.yaml"
PACKAGES = ("airflow.providers.cncf.kubernetes.operators", "airflow.sdk")
OPERATORS = ("pod", "resource")


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """What `pipelines.py` and `second.py` define."""
    parts = PACKAGES[0].split(".")
    packages = [".".join(parts[: length + 1]) for length in range(len(parts))]
    for name in (*packages, PACKAGES[1], *(f"{PACKAGES[0]}.{operator}" for operator in OPERATORS)):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    found: dict[str, Any] = {}
    for name in ("pipelines", "second"):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec((FOLDER / f"{name}.py").read_text(), module.__dict__)
        found |= vars(module)
    return found


def of_a_run(text: str, run: str) -> str:
    """As Airflow's templates would be for that run."""
    return text.replace("{{ run_id | short }}", run)


def pod(name: str, template: Mapping[str, Any]) -> Mapping[str, Any]:
    body: dict[str, Any] = yaml.safe_load(yaml.safe_dump(dict(template)))
    body["spec"]["containers"][0]["image"] = "alpine/git"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, **body}


def classes() -> list[Any]:
    documents = yaml.safe_load_all((FOLDER / "cluster.yaml").read_text())
    return [document for document in documents if document["kind"] == "ResourceClass"]


@pytest.mark.parametrize(
    ("manifests", "template"),
    [
        (lambda found: found["CLAIM"] % found["RUN"], lambda found: found["WITH_CLAIM"]),
        (
            lambda found: "---".join(found["CLAIMS"] % entry for entry in found["MOUNTS"].items()),
            lambda found: found["with_claims"](*found["MOUNTS"]),
        ),
    ],
    ids=["one", "two"],
)
def test_a_runs_pods_name_the_claims_that_the_run_makes(
    pipelines: Mapping[str, Any], manifests: Any, template: Any, tmp_path: Path
) -> None:
    made = list(yaml.safe_load_all(of_a_run(manifests(pipelines), "0123abcd")))
    text = of_a_run(yaml.safe_dump(pod("clone", template(pipelines))), "0123abcd")
    file = tmp_path / "run.yaml"
    namespaced = [{**body, "metadata": {**body["metadata"], "namespace": "default"}} for body in made]
    file.write_text("---\n".join([*(yaml.safe_dump(body) for body in [*classes(), *namespaced]), text]))

    known = read([NODES, file])

    (task,) = [one.body for one in known if one.body["kind"] == "Pod"]
    named = [entry["resourceClaimName"] for entry in task["spec"]["resourceClaims"]]
    assert named == [body["metadata"]["name"] for body in made]
    used = [entry["name"] for entry in task["spec"]["containers"][0]["resources"]["claims"]]
    assert used == [entry["name"] for entry in task["spec"]["resourceClaims"]]
    assert {body["spec"]["resourceClassName"] for body in made} == {one["metadata"]["name"] for one in classes()}


def test_the_class_is_that_of_the_pipeline_without_airflow() -> None:
    documents = list(yaml.safe_load_all((NODES.parent / "workspace.yaml").read_text()))
    assert classes() == [document for document in documents if document["kind"] == "ResourceClass"]


def test_the_name_of_a_run_is_one_that_kubernetes_takes(pipelines: Mapping[str, Any]) -> None:
    names = {
        pipelines["short"](run) for run in ("manual__2026-11-23T06:07:44.684489+00:00", "scheduled__2", "é" * 250)
    }
    assert len(names) == 3
    assert all(len(name) == 8 and name.isalnum() and name.islower() | name.isdigit() for name in names)
