"""What a model takes for a field that is left out is in the CRD, so that the API server shows it in the object."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from parley.api.crd import KINDS, Kind, structural_schema

Path = str

FILLED_IN = {
    "ResourceClass": {
        ".allocationTimeoutSeconds": 600,
        ".nodePart": "Required",
        ".onPermanentError": "ExcludeNode",
        ".placement": "Optimistic",
        ".preemption": "Never",
        ".scoreWeight": 1,
        ".shareable": False,
    },
    "ResourceClaim": {".spec.allocationMode": "WaitForFirstConsumer"},
    "ResourceClaimTemplate": {".spec.spec.allocationMode": "WaitForFirstConsumer"},
    "PodScheduling": {},
    "ClaimRelease": {
        ".spec.allocation.reserve.hold": "Ledger",
        ".spec.units": 1,
        ".spec.allocation.shareable": False,
        ".spec.removeData": False,
        ".spec.nodeLost": False,
    },
}
"""All defaults that the API server writes. One that is new here is new in everybody's objects."""


def defaults(model: type[BaseModel], path: Path = "") -> Iterator[tuple[Path, Any]]:
    """Each field below the model with its default, by its path in the CRD."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        if not path and name in ("api_version", "kind", "metadata"):
            continue  # the server's own
        yield here, field.get_default(call_default_factory=True)
        for inner, step in models_in(field):
            yield from defaults(inner, here + step)


def models_in(field: FieldInfo) -> Iterator[tuple[type[BaseModel], str]]:
    def walk(annotation: Any, step: str) -> Iterator[tuple[type[BaseModel], str]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation, step
            return
        inside = "[]" if getattr(annotation, "__origin__", None) is tuple else ""
        for part in get_args(annotation):
            yield from walk(part, step + inside)

    yield from walk(field.annotation, "")


def schema_at(kind: Kind, path: Path) -> dict[str, Any]:
    schema: dict[str, Any] = structural_schema(kind.resource.type)
    for step in path.removeprefix(".").split("."):
        schema = schema["properties"][step.removesuffix("[]")]
        schema = schema["items"] if step.endswith("[]") else schema
    return schema


def says_nothing(default: Any) -> bool:
    """An absent field says the same: nothing at all, no items, no text, none yet."""
    return (
        default in (None, "", (), {}) or isinstance(default, BaseModel) or (default == 0 and default is not False)
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_models_and_schemas_have_the_same_defaults(kind: Kind) -> None:
    found: dict[Path, Any] = {}
    for path, default in defaults(kind.resource.type):
        shown = schema_at(kind, path).get("default", PydanticUndefined)
        if default is PydanticUndefined or says_nothing(default) or path.startswith(".status"):
            assert shown is PydanticUndefined, f"{path} must not have a default in the schema"
        else:
            assert shown == default, f"{path} has {default!r} in the model"
            found[path] = shown
    assert found == FILLED_IN[kind.resource.kind]


def test_the_table_has_every_kind() -> None:
    assert set(FILLED_IN) == {kind.resource.kind for kind in KINDS}
