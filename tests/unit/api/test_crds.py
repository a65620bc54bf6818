"""The CRDs: what is in `crds/` is what the models say, and kubectl shows the kinds as documented."""

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, Field

from parley.api.crd import KINDS, UnsupportedSchema, definition, manifests, structural_schema
from parley.api.crd.__main__ import main
from parley.api.markers import ListMap, Rule, rules

CRDS = Path(__file__).parents[3] / "crds"

by_plural = {kind.resource.plural: definition(kind) for kind in KINDS}


def version(plural: str) -> dict[str, Any]:
    served: dict[str, Any] = by_plural[plural]["spec"]["versions"][0]
    return served


def schema_of(plural: str, *path: str) -> dict[str, Any]:
    schema: dict[str, Any] = version(plural)["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def test_the_files_are_what_the_models_say() -> None:
    written = {path.name: path.read_text() for path in CRDS.glob("*.yaml")}

    assert written == dict(manifests()), "the models changed: run `make crds`"


def test_every_file_is_part_of_the_kustomization() -> None:
    kustomization = yaml.safe_load((CRDS / "Kustomization").read_text())

    assert kustomization["resources"] == sorted(name for name, _ in manifests())


def test_the_command_writes_the_same_files_again(tmp_path: Path) -> None:
    assert main([str(tmp_path / "new")]) == 0

    assert {p.name: p.read_text() for p in (tmp_path / "new").iterdir()} == dict(manifests())


def test_the_command_without_a_directory_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2

    assert capsys.readouterr().err == "usage: python -m parley.api.crd DIRECTORY\n"


@pytest.mark.parametrize(
    ("plural", "short_names", "scope", "columns"),
    [
        (
            "resourceclasses",
            ["prclass", "prclasses"],
            "Cluster",
            "Driver Ready Total Free Age Shareable* Placement* Node-Part* Reason*",
        ),
        (
            "resourceclaims",
            ["prclaim", "prclaims"],
            "Namespaced",
            "Class Allocated Ready Driver Age Mode* Reserved-For* Kept-Until* Reason* Allocation*",
        ),
        ("resourceclaimtemplates", ["prtemplate", "prtemplates"], "Namespaced", "Class Age Mode*"),
        (
            "podschedulings",
            ["psched", "pscheds"],
            "Namespaced",
            "Candidates Viable Selected Waiting-For Age Round* Message*",
        ),
        (
            "claimreleases",
            ["prrelease", "prreleases"],
            "Cluster",
            "Namespace Claim Node Driver Age Class* Cleared*",
        ),
    ],
)
def test_names_and_columns(plural: str, short_names: list[str], scope: str, columns: str) -> None:
    """Those with a star are shown with `-o wide` only."""
    spec = by_plural[plural]["spec"]

    assert spec["names"]["shortNames"] == short_names
    assert spec["names"]["categories"] == ["parley"]
    assert spec["scope"] == scope
    shown = version(plural)["additionalPrinterColumns"]
    assert [f"{one['name']}{'*' * one.get('priority', 0)}" for one in shown] == columns.split()


def test_the_statuses_of_claims_and_classes_are_written_apart() -> None:
    apart = [plural for plural in by_plural if "subresources" in version(plural)]
    assert apart == ["resourceclasses", "resourceclaims"]


def test_a_node_can_select_its_own_releases() -> None:
    selectable = {plural: version(plural).get("selectableFields", []) for plural in by_plural}

    assert {plural: fields for plural, fields in selectable.items() if fields} == {
        "claimreleases": [{"jsonPath": ".spec.nodeName"}]
    }


def test_every_selectable_field_exists() -> None:
    for kind in KINDS:
        for field in kind.selectable:
            assert schema_of(kind.resource.plural, *field.split("."))["type"] == "string"


def test_every_column_shows_a_field_that_exists() -> None:
    for kind in KINDS:
        for column in kind.columns:
            plain = re.sub(r"\[[^]]*\]", ".[]", column.path)
            path = plain.removeprefix(".").split(".")
            assert path[0] == "metadata" or schema_of(kind.resource.plural, *path)


def test_appliers_of_different_entries_do_not_conflict() -> None:
    assert schema_of("podschedulings", "status", "claims")["x-kubernetes-list-map-keys"] == ["name"]
    assert schema_of("resourceclaims", "status", "reservedFor")["x-kubernetes-list-map-keys"] == ["uid"]
    assert schema_of("podschedulings", "spec", "candidateNodes")["x-kubernetes-list-type"] == "atomic"


def test_only_what_users_write_is_completed_with_defaults() -> None:
    assert schema_of("resourceclaims", "spec", "allocationMode")["default"] == "WaitForFirstConsumer"
    assert schema_of("resourceclasses", "shareable")["default"] is False
    assert "default" not in schema_of("resourceclaims", "status", "deallocationRequested")
    assert "default" not in schema_of("podschedulings", "spec", "selectedNode")


def test_every_rules_message_is_a_sentence() -> None:
    def messages(node: Any) -> list[str]:
        if isinstance(node, list):
            return [text for item in node for text in messages(item)]
        if not isinstance(node, dict):
            return []
        own = [rule["message"] for rule in node.get("x-kubernetes-validations", ())]
        return own + [text for inner in node.values() for text in messages(inner)]

    found = messages(list(by_plural.values()))
    assert len(found) > 10
    assert [text for text in found if not text.endswith(".") or "  " in text] == []


class Inner(BaseModel):
    """An inner thing."""

    model_config = {"json_schema_extra": rules(Rule("has(self.word)", "word is needed.", "word"))}

    word: str | None = None


class Outer(BaseModel):
    """An outer thing."""

    inner: Annotated[Inner | None, Rule("self == oldSelf", "inner is immutable."), Field(description="Mine.")] = (
        None
    )
    free: dict[str, Any] = {}
    labels: dict[str, str] = {}
    ports: Annotated[tuple[int, ...], Field(max_length=3)] = ()
    things: Annotated[tuple[Inner, ...], ListMap(("word",))] = ()
    count: Annotated[int, Field(ge=1, le=9)]


def test_a_model_becomes_a_structural_schema() -> None:
    schema = structural_schema(Outer)
    properties = schema["properties"]

    assert schema["description"] == "An outer thing."
    assert schema["required"] == ["count"]
    assert properties["metadata"] == {"type": "object"}
    assert properties["inner"] == {
        "description": "Mine.",
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "x-kubernetes-validations": [
            {"rule": "has(self.word)", "message": "word is needed.", "fieldPath": ".word"},
            {"rule": "self == oldSelf", "message": "inner is immutable."},
        ],
    }
    assert properties["free"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert properties["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert properties["ports"] == {
        "type": "array",
        "maxItems": 3,
        "items": {"type": "integer", "format": "int64"},
        "x-kubernetes-list-type": "atomic",
    }
    assert properties["things"]["x-kubernetes-list-map-keys"] == ["word"]
    assert properties["count"] == {"type": "integer", "format": "int64", "minimum": 1, "maximum": 9}


class Undecided(BaseModel):
    spec: int | str


def test_a_type_without_a_structural_form_is_refused() -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        structural_schema(Undecided)

    assert str(refused.value) == (
        "Undecided.spec has a 'union', which a CustomResourceDefinition made of it would not say: say it with "
        "limits of types and fields, or as a Rule"
    )
