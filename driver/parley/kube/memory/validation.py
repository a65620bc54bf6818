"""Whether the server takes an object: the kind's pydantic model and its rules, every fault told at once."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from parley.api.resources import Resource
from parley.kube.memory.kinds import Json, Traits
from parley.kube.memory.refusals import Fault, invalid


def check(resource: Resource[Any], traits: Traits, old: Json | None, new: Json) -> None:
    """Raise Invalid if the object breaks a rule of its kind."""
    faults = list(_shape(traits.model, new)) if traits.model else []
    if not faults:
        faults = [fault for rule in traits.rules for fault in rule(old, new)]
    if faults:
        raise invalid(resource, new["metadata"]["name"], faults)


def _shape(model: type[BaseModel], body: Json) -> Iterator[Fault]:
    try:
        model.model_validate(body)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            yield Fault(_spelled(fault["loc"]), _told(fault["type"], fault["msg"], fault.get("input")))


def _spelled(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _told(kind: str, message: str, value: Any) -> str:
    if kind == "missing":
        return "Required value"
    shown = value if isinstance(value, str | int | float | bool) else type(value).__name__
    return f"Invalid value: {shown!r}: {message}"
