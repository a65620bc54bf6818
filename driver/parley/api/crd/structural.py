"""From a model's JSON schema to the structural schema that a CustomResourceDefinition wants. Pure.

What a structural schema cannot have is rewritten: references are put in place, "or null" is dropped (an absent
field has the same), titles go. Free dictionaries keep their unknown fields, other objects list theirs all.
Lists are atomic unless their field is marked otherwise (`parley.api.markers.ListMap`). What the names in a
dictionary have to be is a rule in CEL. Everything that a model checks is in its schema, or there is none.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from parley.api.crd.constraints import check_constraints
from parley.api.crd.unsupported import UnsupportedSchema
from parley.api.markers import MOMENT, RULES, Rule

Schema = dict[str, Any]

_ORDER = (
    *("description", "type", "format", "default", "enum", "pattern", "minLength", "maxLength"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "required", "properties"),
    *("additionalProperties", "items", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields", RULES),
)


_STRUCTURAL_FORMATS = {MOMENT: "date-time", "int64": "int64", "int32": "int32"}
_REMEDY = "use a simpler type"
_ONE_TIME = Rule("type(self) == google.protobuf.Timestamp", "must be a time, as in RFC 3339.")
"""Without it the API server takes any list for a time (seen with Kubernetes 1.36 and 1.37)."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """The `openAPIV3Schema` of a kind: with its description, `metadata` left to Kubernetes.

    Raises UnsupportedSchema, with the field's path and the constraint, for what has no structural form.
    """
    check_constraints(model)
    document = model.model_json_schema(by_alias=True)
    definitions = document.pop("$defs", {})
    properties = document["properties"]
    properties["apiVersion"] = {"type": "string", "description": "Group and version of the object."}
    properties["kind"] = {"type": "string", "description": "Kind of the object."}
    properties["metadata"] = {"type": "object"}
    return _Rewriting(model.__name__, definitions).rewrite(document, "")


class _Rewriting:
    """Knows the model's name, and the definitions that references point to."""

    def __init__(self, model: str, definitions: Mapping[str, Schema]) -> None:
        self._model = model
        self._definitions = definitions

    def rewrite(self, schema: Schema, path: str) -> Schema:
        flat = self._flat(schema)
        flat.pop("title", None)
        if "const" in flat:
            flat["enum"] = [flat.pop("const")]
        _say_bounds_apart(flat)
        if "format" in flat:
            flat["format"] = self._format(flat["format"], path)
        if flat.get("format") == "date-time":
            flat[RULES] = [*flat.get(RULES, ()), _ONE_TIME.entry()]
        if not _is_filled_in(flat.get("default"), path):
            flat.pop("default", None)
        kind = flat.get("type")
        if kind == "array":
            flat["items"] = self.rewrite(flat["items"], f"{path}[]")
            flat.setdefault("x-kubernetes-list-type", "atomic")
        elif kind == "object":
            self._rewrite_object(flat, path)
        elif kind == "integer":
            flat.setdefault("format", "int64")
        return self._ordered(flat, path)

    def _format(self, name: str, path: str) -> str:
        """Of most formats the API server takes another view than pydantic, or none."""
        if name not in _STRUCTURAL_FORMATS:
            raise UnsupportedSchema(
                self._model, path, f"the format {name!r}", "use a text; markers.Moment for times"
            )
        return _STRUCTURAL_FORMATS[name]

    def _ordered(self, schema: Schema, path: str) -> Schema:
        for keyword in schema:
            if keyword not in _ORDER:
                raise UnsupportedSchema(self._model, path, f"{keyword!r} in its JSON schema", _REMEDY)
        return {keyword: schema[keyword] for keyword in _ORDER if keyword in schema}

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
        if names := flat.pop("propertyNames", None):
            flat[RULES] = [*flat.get(RULES, ()), self._rule_of_names(names, path)]
        inner = flat.pop("additionalProperties", None)
        if isinstance(inner, dict):
            flat["additionalProperties"] = self.rewrite(inner, f"{path}[*]")
        elif inner is True:
            flat["x-kubernetes-preserve-unknown-fields"] = True

    def _rule_of_names(self, names: Schema, path: str) -> Schema:
        """Names are limited in CEL alone. It can't look at their characters: that would cost too much."""
        for keyword in names:
            if keyword not in ("type", "minLength", "maxLength"):
                raise UnsupportedSchema(self._model, f"{path}[key]", repr(keyword), "limit its length alone")
        least, most = names.get("minLength", 0), names.get("maxLength")
        limits = [f"size(name) >= {least}"] if least or most is None else []
        limits += [f"size(name) <= {most}"] if most is not None else []
        length = f"{least} to {most} characters" if most is not None else f"at least {least} characters"
        return dict(Rule(f"self.all(name, {' && '.join(limits)})", f"each name must have {length}.").entry())


def _say_bounds_apart(flat: Schema) -> None:
    """A limit that is itself excluded is a flag beside it there."""
    for keyword in ("minimum", "maximum"):
        excluded = f"exclusive{keyword.capitalize()}"
        if (bound := flat.get(excluded)) is not None:
            flat[keyword], flat[excluded] = bound, True


def _is_filled_in(default: object, path: str) -> bool:
    """Whether the API server writes a default into the objects: every one that says something.

    Not those that say "nothing", which an absent field does as well: an empty list, object or text, 0. They would
    cost bytes in every object, rules with `has` would find them, and by server-side apply who sent an object
    without them would come to own a list that others fill. And nothing in a status: whoever removes a field of it
    in a merge patch would have it back.
    """
    says_something = isinstance(default, bool) or (isinstance(default, str | int) and bool(default))
    return says_something and not path.startswith(".status")
