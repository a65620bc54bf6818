"""The server in memory checks what the schemas of the CRDs say, in the words of the real one."""

from collections.abc import Iterator
from typing import Any

import pytest

from parley.api.crd import KINDS, structural_schema
from parley.kube.memory.errors import Fault
from parley.kube.memory.schema import _PARTS, checker

TOLD_ELSEWHERE = {
    *("description", "type", "default", "x-kubernetes-list-type", "x-kubernetes-validations"),
    "x-kubernetes-preserve-unknown-fields",
}


def keywords(schema: dict[str, Any]) -> Iterator[str]:
    yield from schema
    for part in schema.get("properties", {}).values():
        yield from keywords(part)
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from keywords(schema[name])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.plural)
def test_every_keyword_of_our_schemas_is_checked(kind: Any) -> None:
    assert set(keywords(structural_schema(kind.resource.type))) <= _PARTS.keys() | TOLD_ELSEWHERE


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    found: list[Fault] = []
    checker(schema)(value, (None, "f"), found)
    return [str(fault) for fault in found]


CASES: list[tuple[dict[str, Any], Any, list[str]]] = [
    ({"type": "string"}, 1, ['f: Invalid value: "integer": f in body must be of type string: "integer"']),
    ({"type": "string"}, None, ['f: Invalid value: "null": f in body must be of type string: "null"']),
    ({"type": "integer"}, True, ['f: Invalid value: "boolean": f in body must be of type integer: "boolean"']),
    ({"type": "integer"}, 1.5, ['f: Invalid value: "number": f in body must be of type integer: "number"']),
    ({"type": "integer"}, 2.0, []),
    ({"type": "number"}, 2, []),
    (
        {"type": "integer", "minimum": 1},
        0,
        ["f: Invalid value: 0: f in body should be greater than or equal to 1"],
    ),
    ({"type": "integer", "maximum": 1}, 2, ["f: Invalid value: 2: f in body should be less than or equal to 1"]),
    ({"type": "string", "maxLength": 1}, "éé", ["f: Too long: may not be more than 1 bytes"]),
    (
        {"type": "string", "minLength": 1},
        "",
        ['f: Invalid value: "": f in body should be at least 1 chars long'],
    ),
    ({"type": "string", "pattern": "^a$"}, "a\n", ["f: Invalid value: \"a\n\": f in body should match '^a$'"]),
    ({"type": "string", "enum": ["a"]}, "b", ['f: Unsupported value: "b": supported values: "a"']),
    ({"type": "string", "format": "date-time"}, "2026-02-28t23:59:59.5+02:00", []),
    (
        {"type": "string", "format": "date-time"},
        "2026-02-31T00:00:00Z",
        [
            'f: Invalid value: "2026-02-31T00:00:00Z": f in body must be of type date-time: '
            '"2026-02-31T00:00:00Z"',
        ],
    ),
    (
        {"type": "string", "format": "date-time"},
        "today",
        ['f: Invalid value: "today": f in body must be of type date-time: "today"'],
    ),
    ({"type": "object", "required": ["a"], "properties": {}}, {}, ["f.a: Required value"]),
    ({"type": "object", "maxProperties": 1}, {"a": 1, "b": 2}, ["f: Too many: 2: must have at most 1 items"]),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"a": 1},
        ['f.a: Invalid value: "integer": f.a in body must be of type string: "integer"'],
    ),
    (
        {"type": "array", "items": {"type": "boolean"}, "maxItems": 1},
        [True, 1],
        [
            "f: Too many: 2: must have at most 1 items",
            'f[1]: Invalid value: "integer": f[1] in body must be of type boolean: "integer"',
        ],
    ),
    (
        {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-map-keys": ["name"]},
        [{"name": "a", "x": 1}, {"name": "a"}],
        ['f[1]: Duplicate value: {"name":"a"}'],
    ),
]


@pytest.mark.parametrize(("schema", "value", "told"), CASES, ids=str)
def test_a_value_is_told_what_is_wrong_with_it(schema: dict[str, Any], value: Any, told: list[str]) -> None:
    assert faults(schema, value) == told
