"""Whether a model checks anything that its JSON schema does not express. Pure.

pydantic leaves out of the JSON schema what it can't say there: functions that validate, texts that are changed
before they are checked, limits from a model's configuration. What is left is looked at by `structural`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from parley.api.crd.unsupported import UnsupportedSchema

Core = Mapping[str, Any]
"""A node of pydantic's core schema: see pydantic_core.core_schema."""

_ALWAYS = frozenset({"type", "schema", "metadata", "ref", "serialization", "strict"})
_NUMBER = frozenset({"ge", "gt", "le", "lt", "multiple_of", "allow_inf_nan"})
_LIST = frozenset({"items_schema", "min_length", "max_length", "fail_fast"})
_DEFAULT = frozenset(
    {"default", "default_factory", "default_factory_takes_data", "validate_default", "copy_default"}
)
_SAID: Mapping[str, frozenset[str]] = {
    "any": frozenset(),
    "bool": frozenset(),
    "default": _DEFAULT,
    "definitions": frozenset({"definitions"}),
    "definition-ref": frozenset({"schema_ref"}),
    "dict": frozenset({"keys_schema", "values_schema", "min_length", "max_length", "fail_fast"}),
    "float": _NUMBER,
    "int": _NUMBER,
    "list": _LIST,
    "literal": frozenset({"expected"}),
    "model": frozenset(
        {"cls", "config", "custom_init", "extra_behavior", "frozen", "root_model", "revalidate_instances"}
    ),
    "model-field": frozenset({"validation_alias", "serialization_alias", "frozen"}),
    "model-fields": frozenset({"fields", "model_name", "extra_behavior", "computed_fields"}),
    "nullable": frozenset(),
    "str": frozenset({"min_length", "max_length", "pattern", "regex_engine"}),
    "tuple": frozenset({*_LIST, "variadic_item_index"}),
}
"""What a node of each type may say; everything else is a constraint that the JSON schema lacks."""

_CONFIGURED = ("str_max_length", "str_min_length", "str_strip_whitespace", "str_to_lower", "str_to_upper")
_OTHER_IN_GO = re.compile(r"\\[dDwWsSbB]|\(\?")
"""Parts of patterns that Rust, where pydantic looks, takes for more than Go, where the API server does."""

_REMEDY = "say it with limits of types and fields, or as a Rule"


def check_constraints(model: type[BaseModel]) -> None:
    """Raises UnsupportedSchema, with model, field and constraint, if a schema would say less than the model."""
    schema: Any = model.__pydantic_core_schema__
    definitions = schema["definitions"] if schema["type"] == "definitions" else ()
    _Walk(model.__name__, {one["ref"]: one for one in definitions}).check(schema, "", ())


class _Walk:
    def __init__(self, model: str, definitions: Mapping[str, Core]) -> None:
        self._model = model
        self._definitions = definitions

    def check(self, node: Core, path: str, within: tuple[str, ...]) -> None:
        for constraint, remedy in _unsaid(node):
            raise UnsupportedSchema(self._model, path, constraint, remedy)
        for step, inner in _inside(node):
            self.check(inner, path + step, within)
        if node["type"] == "definition-ref":
            ref = node["schema_ref"]
            if ref in within:
                raise UnsupportedSchema(self._model, path, "a type that refers to itself", "limit its depth")
            self.check(self._definitions[ref], path, (*within, ref))


def _unsaid(node: Core) -> Iterator[tuple[str, str]]:
    kind = node["type"]
    if kind not in _SAID:
        yield f"a {kind!r}", _REMEDY
    for key in sorted(node.keys() - _SAID.get(kind, frozenset()) - _ALWAYS):
        if node[key] not in (None, False):
            yield repr(key), _REMEDY
    for key in _CONFIGURED:
        if kind == "model" and node.get("config", {}).get(key):
            yield f"{key!r} in its configuration", "give each text its max_length"
    if kind == "model" and (node.get("root_model") or node.get("custom_init")):
        yield "no fields of its own", "use a model with fields"
    if _OTHER_IN_GO.search(str(node.get("pattern", ""))):
        yield f"the pattern {node['pattern']!r}", "write out the characters, such as [0-9], and no groups with (?"
    if kind == "tuple" and "variadic_item_index" not in node:
        yield "a 'tuple' of so many items", "use tuple[..., ...], or a model"
    if kind == "dict" and node.get("keys_schema", {"type": "str"})["type"] not in ("str", "any"):
        yield f"keys that are a {node['keys_schema']['type']!r}", "let them be texts"


def _inside(node: Core) -> Iterator[tuple[str, Core]]:
    children: Mapping[str, Callable[[], Iterator[tuple[str, Core]]]] = {
        "model-fields": lambda: ((f".{_alias(name, one)}", one) for name, one in node["fields"].items()),
        "dict": lambda: _parts(node, keys_schema="[key]", values_schema="[*]"),
        "list": lambda: _parts(node, items_schema="[]"),
        "tuple": lambda: (("[]", one) for one in node["items_schema"]),
        "definition-ref": lambda: iter(()),
    }
    return children.get(node["type"], lambda: _parts(node, schema=""))()


def _alias(name: str, field: Core) -> str:
    return str(field.get("validation_alias") or name)


def _parts(node: Core, **steps: str) -> Iterator[tuple[str, Core]]:
    return ((step, node[key]) for key, step in steps.items() if key in node)
