"""From a model's JSON schema to the structural schema that a CustomResourceDefinition wants. Pure.

What a structural schema cannot have is rewritten: references are put in place, "or null" is dropped (an absent
field says the same), titles go. Free dictionaries keep their unknown fields, other objects list theirs all.
Lists are atomic unless their field is marked otherwise (`parley.api.markers.ListMap`).
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from parley.api.markers import RULES

Schema = dict[str, Any]

_ORDER = (
    *("description", "type", "format", "default", "enum", "pattern", "minLength", "maxLength"),
    *("minimum", "maximum", "minItems", "maxItems", "maxProperties", "required", "properties"),
    *("additionalProperties", "items", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields", RULES),
)


class UnsupportedSchema(TypeError):
    """Raised when a model has a field that no structural schema can describe."""

    def __init__(self, path: str, keyword: str) -> None:
        super().__init__(
            f"{path} has {keyword!r} in its JSON schema, which a structural schema cannot say; use a simpler type"
        )


def structural_schema(model: type[BaseModel]) -> Schema:
    """The `openAPIV3Schema` of a kind: with its description, `metadata` left to Kubernetes.

    Raises UnsupportedSchema, with the field's path, for a type that has no structural form.
    """
    document = model.model_json_schema(by_alias=True)
    definitions = document.pop("$defs", {})
    properties = document["properties"]
    properties["apiVersion"] = {"type": "string", "description": "Group and version of the object."}
    properties["kind"] = {"type": "string", "description": "Kind of the object."}
    properties["metadata"] = {"type": "object"}
    return _Rewriting(definitions).rewrite(document, "")


class _Rewriting:
    """Knows the definitions that references point to."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def rewrite(self, schema: Schema, path: str) -> Schema:
        flat = self._flat(schema)
        flat.pop("title", None)
        if "const" in flat:
            flat["enum"] = [flat.pop("const")]
        if not _worth_showing(flat.get("default"), path):
            flat.pop("default", None)
        kind = flat.get("type")
        if kind == "array":
            flat["items"] = self.rewrite(flat["items"], f"{path}[]")
            flat.setdefault("x-kubernetes-list-type", "atomic")
        elif kind == "object":
            self._rewrite_object(flat, path)
        elif kind == "integer":
            flat.setdefault("format", "int64")
        return _ordered(flat, path)

    def _flat(self, schema: Schema) -> Schema:
        """Without `$ref` and `anyOf`; what stands beside them has precedence, rules of both are kept."""
        outer = dict(schema)
        inner: Schema = {}
        if "$ref" in outer:
            # a copy for each place, or the YAML would have anchors
            inner = self._flat(deepcopy(self._definitions[outer.pop("$ref").rpartition("/")[2]]))
        choices = [choice for choice in outer.get("anyOf", ()) if choice != {"type": "null"}]
        if len(choices) == 1:
            del outer["anyOf"]
            inner = self._flat(choices[0])
        both = [*inner.get(RULES, ()), *outer.get(RULES, ())]
        return {**inner, **outer, **({RULES: both} if both else {})}

    def _rewrite_object(self, flat: Schema, path: str) -> None:
        if "properties" in flat:
            flat["properties"] = {
                name: self.rewrite(inner, f"{path}.{name}") for name, inner in flat["properties"].items()
            }
        flat.pop("propertyNames", None)
        inner = flat.pop("additionalProperties", None)
        if isinstance(inner, dict):
            flat["additionalProperties"] = self.rewrite(inner, f"{path}[*]")
        elif inner is True:
            flat["x-kubernetes-preserve-unknown-fields"] = True


def _worth_showing(default: object, path: str) -> bool:
    """Whether the API server should write a default into the object: what a user could have said, and did not."""
    return isinstance(default, str | bool) and default != "" and not path.startswith(".status")


def _ordered(schema: Schema, path: str) -> Schema:
    for keyword in schema:
        if keyword not in _ORDER:
            raise UnsupportedSchema(path or "the object", keyword)
    return {keyword: schema[keyword] for keyword in _ORDER if keyword in schema}
