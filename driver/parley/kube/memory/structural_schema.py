"""A CRD's structural schema as the API server applies it: prune unknown fields, fill in defaults, check rules.

The schemas are those of the CRDs, generated from the models. Their rules are CEL, which is not interpreted here:
`RULES_IN_PYTHON` has each rule in Python. An unknown rule always holds, and a unit test checks that there is none.
The constraints of single fields are checked in `schema`.
Source: "Specifying a structural schema" and "Validation rules" in the Kubernetes documentation (1.37).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from parley.api.crd import structural_schema
from parley.api.markers import RULES
from parley.api.meta import MAX_COMPARED, MAX_VALUES
from parley.kube.memory.errors import Fault

Json = dict[str, Any]
Schema = Mapping[str, Any]
Fields = tuple[str, ...]

schema_of: Callable[[type[BaseModel]], Schema] = cache(structural_schema)
"""The structural schema of a model, generated once."""


def settled(value: Any, schema: Schema) -> Any:
    """The value as the server stores it: only known fields, none of them null, with defaults."""
    if isinstance(value, dict) and "properties" in schema:
        return _settled_object(value, schema["properties"])
    if isinstance(value, dict) and "additionalProperties" in schema:
        inner = schema["additionalProperties"]
        return {name: settled(child, inner) for name, child in value.items() if child is not None}
    if isinstance(value, list) and "properties" in schema.get("items", ()):
        return [settled(child, schema["items"]) for child in value]
    return value


def _settled_object(value: Json, properties: Mapping[str, Schema]) -> Json:
    known = {
        name: settled(child, properties[name])
        for name, child in value.items()
        if child is not None and name in properties
    }
    for name, schema in properties.items():
        if "default" in schema and name not in known:
            known[name] = schema["default"]
    return known


def unknown_fields(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """The fields that the schema does not have, which strict validation refuses; those of metadata are left
    out."""
    if isinstance(value, dict) and "properties" in schema:
        for name, child in value.items():
            where = f"{path}.{name}" if path else name
            if name in schema["properties"]:
                yield from unknown_fields(child, schema["properties"][name], where)
            else:
                yield where
    elif isinstance(value, list) and "items" in schema:
        for index, child in enumerate(value):
            yield from unknown_fields(child, schema["items"], f"{path}[{index}]")


def nulls(value: Any, schema: Schema, path: str = "") -> Iterator[Fault]:
    """Faults for known fields that are null, each of which makes an object invalid unless it was dropped
    before."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            where = f"{path}.{name}" if path else name
            if name in value and value[name] is None:
                why = f'Invalid value: "null": {where} in body must be of type {inner["type"]}: "null"'
                yield Fault(where, why)
            elif name in value:
                yield from nulls(value[name], inner, where)
    elif isinstance(value, list) and "items" in schema:
        for index, child in enumerate(value):
            yield from nulls(child, schema["items"], f"{path}[{index}]")


def list_maps(schema: Schema, fields: Fields = ()) -> Iterator[tuple[Fields, Fields]]:
    """The list maps: their fields from the root, and the names of their key fields."""
    for name, inner in schema.get("properties", {}).items():
        yield from list_maps(inner, (*fields, name))
    if schema.get("x-kubernetes-list-type") == "map":
        yield fields, tuple(schema["x-kubernetes-list-map-keys"])
    if "items" in schema:
        yield from list_maps(schema["items"], fields)


def ruled(schema: Schema) -> Schema:
    """Only the parts of the schema that contain rules."""
    kept = {key: schema[key] for key in (RULES, "x-kubernetes-list-map-keys") if key in schema}
    inner = {name: ruled(part) for name, part in schema.get("properties", {}).items()}
    if properties := {name: part for name, part in inner.items() if _has_rules(part)}:
        kept["properties"] = properties
    if "items" in schema and _has_rules(items := ruled(schema["items"])):
        kept["items"] = items
    return kept


def _has_rules(schema: Schema) -> bool:
    return any(key in schema for key in (RULES, "properties", "items"))


def broken_rules(old: Any, new: Any, schema: Schema, path: str = "") -> Iterator[Fault]:
    """The faults of `new` by the rules of its schema. `old` is None if there was no value before."""
    for entry in schema.get(RULES, ()):
        holds = RULES_IN_PYTHON.get(entry["rule"])
        applies = old is not None or "oldSelf" not in entry["rule"]
        if holds is not None and applies and not holds(old, new):
            field = f"{path}{entry.get('fieldPath', '')}"
            yield Fault(field, f"Invalid value: {entry['message']}")
    if isinstance(new, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in new:
                before = old.get(name) if isinstance(old, dict) else None
                yield from broken_rules(before, new[name], inner, f"{path}.{name}" if path else name)
    elif isinstance(new, list) and "items" in schema:
        yield from _broken_in_list(old, new, schema, path)


def _broken_in_list(old: Any, new: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
    """Items of a list map are compared with their old values; items of other lists always count as new."""
    keys = schema.get("x-kubernetes-list-map-keys", ())
    known = {_identity(child, keys): child for child in old or ()} if keys else {}
    for index, child in enumerate(new):
        yield from broken_rules(known.get(_identity(child, keys)), child, schema["items"], f"{path}[{index}]")


def _identity(child: Any, keys: Fields) -> Fields:
    return tuple(str(child.get(key)) for key in keys)


def _unchanged(old: Any, new: Any) -> bool:
    return bool(old == new)


def _requested(status: Json) -> bool:
    return bool(status.get("deallocationRequested"))


def _requirements(term: Json) -> list[Json]:
    return [*term.get("matchExpressions", ()), *term.get("matchFields", ())]


def _few_requirements(_: Any, selector: Json) -> bool:
    return sum(1 + len(_requirements(term)) for term in selector["nodeSelectorTerms"]) <= MAX_COMPARED


def _few_values(_: Any, selector: Json) -> bool:
    all_of_them = (one for term in selector["nodeSelectorTerms"] for one in _requirements(term))
    return sum(len(one.get("values", ())) for one in all_of_them) <= MAX_VALUES


_REQUESTED = "(has({0}.deallocationRequested) && {0}.deallocationRequested)"
_NO_USERS = "(!has(self.reservedFor) || size(self.reservedFor) == 0)"
RULES_IN_PYTHON: Mapping[str, Callable[[Any, Any], bool]] = {
    "self == oldSelf": _unchanged,
    "type(self) == google.protobuf.Timestamp": lambda _, time: isinstance(time, str),
    "self.all(name, size(name) >= 1 && size(name) <= 253)": (
        lambda _, named: all(1 <= len(name) <= 253 for name in named)
    ),
    "self.all(name, size(name) <= 253)": lambda _, named: all(len(name) <= 253 for name in named),
    "self.all(name, size(name) <= 317)": lambda _, named: all(len(name) <= 317 for name in named),
    "self.all(name, size(name) <= 317 && size(self[name]) <= 63)": (
        lambda _, named: all(len(name) <= 317 and len(value) <= 63 for name, value in named.items())
    ),
    "!has(self.parametersRef) || !has(self.parameters)": (
        lambda _, spec: "parametersRef" not in spec or "parameters" not in spec
    ),
    "self.kind != 'ConfigMap' || (has(self.apiGroup) && self.apiGroup != '') || "
    "(has(self.namespace) && self.namespace != '')": (
        lambda _, named: named["kind"] != "ConfigMap" or bool(named.get("apiGroup") or named.get("namespace"))
    ),
    "!has(self.allocation) || has(self.driverName)": (
        lambda _, status: "allocation" not in status or "driverName" in status
    ),
    f"has(self.allocation) || {_NO_USERS}": (
        lambda _, status: "allocation" in status or not status.get("reservedFor")
    ),
    "!has(self.reservedFor) || size(self.reservedFor) <= 1 || !has(self.allocation) || "
    "(has(self.allocation.shareable) && self.allocation.shareable)": (
        lambda _, status: (
            len(status.get("reservedFor", ())) <= 1
            or "allocation" not in status
            or bool(status["allocation"].get("shareable"))
        )
    ),
    f"!{_REQUESTED.format('self')} || has(self.allocation)": (
        lambda _, status: not _requested(status) or "allocation" in status
    ),
    f"!{_REQUESTED.format('self')} || {_NO_USERS}": (
        lambda _, status: not _requested(status) or not status.get("reservedFor")
    ),
    f"!{_REQUESTED.format('oldSelf')} || {_REQUESTED.format('self')} || !has(self.allocation)": (
        lambda old, status: not _requested(old) or _requested(status) or "allocation" not in status
    ),
    "!has(self.nodeSelector) || !has(self.nodes) || size(self.nodes) == 0": (
        lambda _, alternatives: "nodeSelector" not in alternatives or not alternatives.get("nodes")
    ),
    "!has(self.namespaceSelector) || !has(self.namespaces) || size(self.namespaces) == 0": (
        lambda _, limit: "namespaceSelector" not in limit or not limit.get("namespaces")
    ),
    "(self.operator in ['Exists', 'DoesNotExist']) != (has(self.values) && size(self.values) > 0)": (
        lambda _, requirement: (
            (requirement["operator"] in ("Exists", "DoesNotExist")) != bool(requirement.get("values"))
        )
    ),
    "self.nodeSelectorTerms.map(t, 1 + (has(t.matchExpressions) ? size(t.matchExpressions) : 0) + "
    "(has(t.matchFields) ? size(t.matchFields) : 0)).sum() <= 256": _few_requirements,
    "self.nodeSelectorTerms.map(t, "
    "(has(t.matchExpressions) ? t.matchExpressions.map(r, has(r.values) ? size(r.values) : 0).sum() : 0) + "
    "(has(t.matchFields) ? t.matchFields.map(r, has(r.values) ? size(r.values) : 0).sum() : 0)).sum() <= 4096": (
        _few_values
    ),
}
