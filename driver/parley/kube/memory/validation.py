"""Whether the server takes an object: its metadata, the kind's model and rules; every fault is told at once."""

from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from parley.api.resources import Resource
from parley.kube.memory import naming
from parley.kube.memory.kinds import Json, Traits
from parley.kube.memory.refusals import Fault, invalid

_NOT_BLOCKING = frozenset(
    {"string_pattern_mismatch", "string_too_short", "too_short", "greater_than_equal", "less_than_equal"}
)
"""Faults of pydantic's with which the server of a CRD still looks at the rules; others come alone."""


def check(resource: Resource[Any], traits: Traits, old: Json | None, new: Json) -> None:
    """Raise Invalid if the object breaks a rule of its kind."""
    wrong = _wrong(traits.model, new) if traits.model else []
    named = naming.faults(old["metadata"] if old else None, new["metadata"], custom=traits.custom)
    faults = [*named, *map(_fault, wrong)]
    if all(detail["type"] in _NOT_BLOCKING for detail in wrong):
        faults += [fault for rule in traits.rules for fault in rule(old, new)]
    if faults:
        raise invalid(resource, new["metadata"]["name"], faults)


def _wrong(model: type[BaseModel], body: Json) -> list[ErrorDetails]:
    try:
        model.model_validate(_without_text(body))
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _without_text(value: Any) -> Any:
    """The value with an empty object for each text that nobody looks into."""
    if isinstance(value, dict):
        return {name: _without_text(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_without_text(child) for child in value]
    return {} if isinstance(value, orjson.Fragment) else value


def _fault(detail: ErrorDetails) -> Fault:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    return Fault("".join(parts).removeprefix("."), _told(detail["type"], detail["msg"], detail.get("input")))


def _told(kind: str, message: str, value: Any) -> str:
    if kind == "missing":
        return "Required value"
    shown = value if isinstance(value, str | int | float | bool) else type(value).__name__
    return f"Invalid value: {shown!r}: {message}"
