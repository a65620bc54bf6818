"""Every manifest that a page shows is one that the API server takes, with parameters that its driver takes."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from parley.api import models
from parley.api.resources import POD_SCHEDULINGS
from parley.drivers import built_in
from parley.sdk.checks import parse_parameters
from parley.simulate.manifests import read
from parley.simulate.validation import Validator

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERWISE = ("Kustomization", "PipelineRun", "PodScheduling")
OWNER = "{apiVersion: v1, kind: Pod, name: trainer, uid: 0b8f}"
DRIVERS = {driver.name: driver for driver in built_in()}
Body = dict[str, Any]


def documents(page: Path) -> Iterator[Body]:
    """What the page's blocks of YAML hold. Of a pod's owner the protocol's page shows only the kind."""
    for block in re.findall(r"(?m)^ *```yaml.*\n((?:.*\n)*?) *```", page.read_text()):
        for document in yaml.safe_load_all(block.replace("{kind: Pod, ...}", OWNER)):
            if isinstance(document, dict):
                yield document


SHOWN = [(page, document) for page in PAGES for document in documents(page)]
MANIFESTS = [
    pytest.param(document, id=f"{page.relative_to(ROOT)}: {document['kind']} {document['metadata'].get('name')}")
    for page, document in SHOWN
    if "kind" in document and document["kind"] not in OTHERWISE
]


def test_there_are_some() -> None:
    assert len(MANIFESTS) > 30


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_the_api_server_would_take_it(manifest: Body, tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(manifest))

    (taken,) = read([tmp_path / "shown.yaml"])

    assert taken.name == manifest["metadata"]["name"]


def test_the_question_and_the_answer_of_the_protocol_are_taken() -> None:
    question, answer = (document for _, document in SHOWN if document.get("kind") == "PodScheduling")
    applied = {**question, **answer}

    assert Validator().faults_of(POD_SCHEDULINGS, question, "team-a") == []
    assert Validator().faults_of(POD_SCHEDULINGS, applied, "team-a") == []
    assert [claim["name"] for claim in question["spec"]["claims"]] == [
        c["name"] for c in answer["status"]["claims"]
    ]


def requested(page: Path) -> Iterator[tuple[str, Mapping[str, Any] | None, type[Any]]]:
    """Parameters of classes, claims and templates of drivers that come with Parley, and their models."""
    shown = [document for where, document in SHOWN if where == page]
    classes = {d["metadata"]["name"]: d["driverName"] for d in shown if d.get("kind") == "ResourceClass"}
    for document in shown:
        spec = document.get("spec", {})
        name = classes.get(document.get("metadata", {}).get("name")) if "driverName" in document else None
        asked = spec.get("spec", spec) if document.get("kind", "").startswith("ResourceClaim") else {}
        if name in DRIVERS:
            yield name, document.get("parameters"), DRIVERS[name].class_parameters
        elif (name := classes.get(asked.get("resourceClassName"))) in DRIVERS:
            yield name, asked.get("parameters"), DRIVERS[name].parameters


REQUESTED = list(chain.from_iterable(map(requested, PAGES)))


def test_drivers_take_the_parameters() -> None:
    assert len(REQUESTED) > 10
    for name, parameters, model in REQUESTED:
        parse_parameters(model, parameters, name)


def test_the_workspaces_driver_takes_the_parameters_that_stand_alone() -> None:
    page = ROOT / "docs" / "workspaces.md"
    alone = [d["parameters"] for where, d in SHOWN if where == page and d.keys() == {"parameters"}]

    def takes(model: type[Any], parameters: Body) -> bool:
        try:
            return bool(model.model_validate(parameters))
        except ValidationError:
            return False

    workspaces = DRIVERS["workspace.parley.dev"]
    kinds = (workspaces.class_parameters, workspaces.parameters)
    assert len(alone) == 3
    assert [parameters for parameters in alone if not any(takes(kind, parameters) for kind in kinds)] == []


def test_what_a_standalone_driver_writes_is_as_the_protocol_shows_it() -> None:
    shown = [d for where, d in SHOWN if where.name == "driver-protocol.md"]
    _, answer, allocated, failed = shown
    (entry,) = answer["status"]["claims"]

    claim = models.ResourceClaim.model_validate({**allocated, "spec": {"resourceClassName": "disks"}})
    refused = models.PodScheduling.model_validate({**answer, "status": {"claims": [{**entry, **failed}]}})

    assert claim.status.allocation is not None
    assert claim.status.driver_name == claim.status.allocation.handles[0].driver_name == entry["driverName"]
    assert refused.status.claims[0].failure is not None
