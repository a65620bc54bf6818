"""What an API server would refuse in an object, in words that name field, value and remedy. Pure.

Covers names, the types of fields, unknown fields of Parley's own kinds and quantities. A real API server checks
much more of the built-in kinds; what it refuses beyond this is found with `kubectl apply --dry-run=server`.
"""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

import orjson
from pydantic import BaseModel, ValidationError

from parley.api.quantity import parse
from parley.api.resources import Resource, Undecodable

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_AMOUNTS = frozenset({"allocatable", "capacity", "requests", "limits", "overhead"})
"""Fields whose values are quantities, if they are mappings."""

_LOCATED = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def name_fault(name: object) -> str:
    """What is wrong with `metadata.name`, or ""."""
    if name is None or name == "":
        return "metadata.name is missing; every object needs a name"
    if not isinstance(name, str):
        return f"metadata.name={name!r} is not a string; put it in quotes"
    if len(name) > 253 or not _NAME.fullmatch(name):
        return f"metadata.name={name!r} is not a name; use lower-case letters, digits, '-' and '.', at most 253"
    return ""


def faults_of(resource: Resource[Any], body: Mapping[str, Any]) -> list[str]:
    """All faults of an object, each a clause that begins with the field."""
    return [*_decoding(resource, body), *_unknown_fields(resource.type, body, ""), *_quantities(body, "")]


def _decoding(resource: Resource[Any], body: Mapping[str, Any]) -> Iterator[str]:
    try:
        resource.decode(orjson.dumps(body))
    except Undecodable as error:
        why = error.__cause__
        if isinstance(why, ValidationError):
            yield from (_of_model(detail) for detail in why.errors())
        else:
            yield _of_struct(str(why), body)


def _of_model(detail: Any) -> str:
    path = _path(detail["loc"])
    if detail["type"] == "missing":
        return f"{path} is missing; add it"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{path}={detail['input']!r}: {message[:1].lower()}{message[1:]}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def _of_struct(message: str, body: Mapping[str, Any]) -> str:
    match = _LOCATED.match(message)
    problem, path = (match["problem"], match["path"] or "") if match else (message, "")
    missing = re.fullmatch(r"Object missing required field `(.+)`", problem)
    if missing:
        return f"{_join(path, missing[1])} is missing; add it"
    problem = problem.replace("`", "")
    return f"{path}={_value(path, body)!r}: {problem[:1].lower()}{problem[1:]}"


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _value(path: str, body: Any) -> Any:
    """What stands at a path as msgspec writes it; `[...]` is some value of a mapping, and ends the search."""
    value = body
    for field, index in _STEP.findall(path):
        if index == "...":
            return value
        value = value[int(index)] if index else value[field]
    return value


def _unknown_fields(model: object, body: Any, path: str) -> Iterator[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel) and isinstance(body, dict)):
        return
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    for name, value in body.items():
        if name not in known:
            yield f"{_join(path, name)} is not a field; known fields are {', '.join(sorted(known))}"
        elif (path, name) != ("", "metadata"):
            yield from _unknown_fields(_inner(known[name]), value, _join(path, name))


def _inner(annotation: Any) -> object:
    """The model within `Model | None`."""
    if get_origin(annotation) in (Union, UnionType):
        return next((part for part in get_args(annotation) if part is not type(None)), None)
    return annotation


def _quantities(body: Any, path: str) -> Iterator[str]:
    if isinstance(body, list):
        for index, item in enumerate(body):
            yield from _quantities(item, f"{path}[{index}]")
    elif isinstance(body, dict):
        for name, value in body.items():
            inner = _join(path, name)
            if name in _AMOUNTS and isinstance(value, dict):
                yield from _amounts(value, inner)
            elif name != "parameters":
                yield from _quantities(value, inner)


def _amounts(amounts: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, amount in amounts.items():
        value: Any = amount.get("value") if isinstance(amount, dict) else amount
        try:
            parse(str(value))
        except ValueError as error:
            yield f"{path}.{name}: {error}"
