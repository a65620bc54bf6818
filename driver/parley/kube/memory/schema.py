"""Validates a value against a structural schema: types, limits, enumerations, required fields, keys of lists.

A checker is created once for each kind from its CRD's schema, so that objects are validated by the CRD's rules
only, and not by rules that only the model has. CEL rules are in `structural_schema`.
Source of messages and rules: k8s.io/kube-openapi/pkg/validation and k8s.io/apiextensions-apiserver (1.37).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

import orjson

from parley.kube.memory.errors import Fault

Schema = Mapping[str, Any]
Faults = list[Fault]
Path = tuple["Path", str | int] | None
"""A value's place in an object: its parent's path, and its name or index there. Formatted for faults only."""

Check = Callable[[Any, Path, Faults], None]
"""Appends the faults of a value at a path."""

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
}
_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    int: "integer",
    float: "number",
    type(None): "null",
}
_MAX_EXACT = 2**53
"""The limit below which a float can represent every integer."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)


def checker(schema: Schema) -> Check:
    """The function that checks values against the schema."""
    kind = schema.get("type", "")
    makers = dict.fromkeys(make for keyword, make in _PARTS.items() if keyword in schema)
    parts = [make(schema) for make in makers]
    expected = _TYPES[kind]
    no_boolean = kind in ("integer", "number")

    def check(value: Any, path: Path, faults: Faults) -> None:
        if value.__class__ is orjson.Fragment:
            value = {}  # raw JSON that is not parsed counts as an empty object
        right = isinstance(value, expected) and not (no_boolean and value.__class__ is bool)
        if not right and not (kind == "integer" and _is_whole(value)):
            faults.append(_wrong_type(value, path, kind))
            return
        for part in parts:
            part(value, path, faults)

    return check


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < _MAX_EXACT


def _wrong_type(value: Any, path: Path, kind: str) -> Fault:
    given, where = _NAMES.get(type(value), "object"), _shown(path)
    why = f'Invalid value: "{given}": {where} in body must be of type {kind}: "{given}"'
    return Fault(where, why, blocking=True)


def _required(schema: Schema) -> Check:
    names: Iterable[str] = schema["required"]

    def check(value: Any, path: Path, faults: Faults) -> None:
        for name in names:
            if name not in value:
                faults.append(Fault(_shown((path, name)), "Required value", blocking=True))

    return check


def _properties(schema: Schema) -> Check:
    checks = {name: checker(part) for name, part in schema["properties"].items()}

    def check(value: Any, path: Path, faults: Faults) -> None:
        for name, known in checks.items():
            if name in value:
                known(value[name], (path, name), faults)

    return check


def _additional(schema: Schema) -> Check:
    each = checker(schema["additionalProperties"])

    def check(value: Any, path: Path, faults: Faults) -> None:
        for name, child in value.items():
            each(child, (path, name), faults)

    return check


def _items(schema: Schema) -> Check:
    each = checker(schema["items"])

    def check(value: Any, path: Path, faults: Faults) -> None:
        for index, child in enumerate(value):
            each(child, (path, index), faults)

    return check


def _keys(schema: Schema) -> Check:
    keys: Iterable[str] = schema["x-kubernetes-list-map-keys"]

    def check(value: Any, path: Path, faults: Faults) -> None:
        seen = set()
        for index, child in enumerate(value):
            if not isinstance(child, dict):
                continue
            own = orjson.dumps({key: child[key] for key in keys if key in child}).decode()
            if own in seen:
                faults.append(Fault(_shown((path, index)), f"Duplicate value: {own}"))
            seen.add(own)

    return check


def _pattern(schema: Schema) -> Check:
    text = schema["pattern"]
    form = re.compile(f"(?:{text.removesuffix('$')})\\Z" if text.endswith("$") else text)
    """Python's `$` also matches before a final line feed; Go's does not."""

    def check(value: Any, path: Path, faults: Faults) -> None:
        if not form.search(value):
            faults.append(_invalid(value, path, f"should match '{text}'"))

    return check


def _format(schema: Schema) -> Check:
    is_date_time = schema["format"] == "date-time"

    def check(value: Any, path: Path, faults: Faults) -> None:
        if is_date_time and not _is_date_time(value):
            faults.append(_invalid(value, path, "must be of type date-time", f': "{value}"'))

    return check


def _is_date_time(text: str) -> bool:
    """Like strfmt.IsDateTime, which ignores what follows a second `t`."""
    day, *rest = text.lower().split("t")
    if not rest or not _DAY.fullmatch(day) or not _TIME.fullmatch(rest[0]):
        return False
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _enumeration(schema: Schema) -> Check:
    known = tuple(schema["enum"])
    supported = ", ".join(f'"{one}"' for one in known)

    def check(value: Any, path: Path, faults: Faults) -> None:
        if value not in known:
            faults.append(
                Fault(_shown(path), f'Unsupported value: "{value}": supported values: {supported}', blocking=True)
            )

    return check


def _length(schema: Schema) -> Check:
    least, most = schema.get("minLength", 0), schema.get("maxLength", _MAX_EXACT)

    def check(value: Any, path: Path, faults: Faults) -> None:
        if len(value) > most:
            faults.append(Fault(_shown(path), f"Too long: may not be more than {most} bytes", blocking=True))
        elif len(value) < least:
            faults.append(_invalid(value, path, f"should be at least {least} chars long"))

    return check


def _max_size(keyword: str) -> Callable[[Schema], Check]:
    def make(schema: Schema) -> Check:
        most = schema[keyword]

        def check(value: Any, path: Path, faults: Faults) -> None:
            if len(value) > most:
                why = f"Too many: {len(value)}: must have at most {most} items"
                faults.append(Fault(_shown(path), why, blocking=True))

        return check

    return make


def _min_size(keyword: str, of_what: str) -> Callable[[Schema], Check]:
    def make(schema: Schema) -> Check:
        least = schema[keyword]

        def check(value: Any, path: Path, faults: Faults) -> None:
            if len(value) < least:
                why = f"Invalid value: {len(value)}: {_shown(path)} in body should have at least {least} {of_what}"
                faults.append(Fault(_shown(path), why))

        return check

    return make


def _minimum(schema: Schema) -> Check:
    least = schema["minimum"]

    def check(value: Any, path: Path, faults: Faults) -> None:
        if value < least:
            faults.append(_invalid(value, path, f"should be greater than or equal to {least}"))

    return check


def _maximum(schema: Schema) -> Check:
    most = schema["maximum"]

    def check(value: Any, path: Path, faults: Faults) -> None:
        if value > most:
            faults.append(_invalid(value, path, f"should be less than or equal to {most}"))

    return check


_PARTS: Mapping[str, Callable[[Schema], Check]] = {
    "format": _format,
    "enum": _enumeration,
    "pattern": _pattern,
    "minLength": _length,
    "maxLength": _length,
    "minimum": _minimum,
    "maximum": _maximum,
    "minItems": _min_size("minItems", "items"),
    "maxItems": _max_size("maxItems"),
    "maxProperties": _max_size("maxProperties"),
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "x-kubernetes-list-map-keys": _keys,
}
"""The supported keywords. Those that none of Parley's kinds uses (`multipleOf`) are missing; a unit test checks
it."""


def _invalid(value: Any, path: Path, why: str, more: str = "") -> Fault:
    shown, where = f'"{value}"' if isinstance(value, str) else value, _shown(path)
    return Fault(where, f"Invalid value: {shown}: {where} in body {why}{more}")


def _shown(path: Path) -> str:
    if path is None:
        return ""
    before, step = _shown(path[0]), path[1]
    if isinstance(step, int):
        return f"{before}[{step}]"
    return f"{before}.{step}" if before else step
