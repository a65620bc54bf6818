"""Checks a driver's class before it is instantiated: its name, missing models or methods, async methods."""

import inspect
from typing import Any

from pydantic import TypeAdapter, ValidationError

from parley.api.models import DriverName
from parley.sdk.driver import Driver
from parley.sdk.values import Parameters

_IN_CONTROLLER = ("see", "users_changed", "units", "viable_without", "reserves", "uses", "stranded")
_REQUIRED = ("parameters", "class_parameters")
_ABSTRACT = ("viable", "allocate", "deallocate", "restore", "forget")
"""Methods without a default."""


def class_fault(kind: type[Driver[Any, Any]]) -> str:
    """Why the class is not a valid driver, and what to change; "" if it is."""
    given = getattr(kind, "name", "")
    if is_invalid_name(given):
        return f"name={given!r} must be a DNS subdomain of at most 63 characters, such as disks.example.com"
    for name in _REQUIRED:
        model = getattr(kind, name, None)
        if not (isinstance(model, type) and issubclass(model, Parameters)):
            given = "is missing" if model is None else f"is {model!r}"
            return f"{name} {given}: set it to a class that derives from parley.sdk.Parameters, or NoParameters"
    coroutines = [name for name in _SYNCHRONOUS if _is_coroutine(getattr(kind, name))]
    if coroutines:
        return (
            f"{' and '.join(coroutines)} must not be async: Parley calls it without await, and nothing of it runs"
        )
    if missing := [name for name in _ABSTRACT if _is_default(kind, name)]:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        return f"{' and '.join(missing)} {are} missing: every driver has to write {them}"
    return ""


def only_in_controller(kind: type[Driver[Any, Any]]) -> list[str]:
    """The members that the class overrides, and that have no effect for a standalone driver: its claims are one
    unit each, reserve nothing, leave no data on nodes, and so on."""
    flags = [name for name in ("sees_pods", "leaves_data") if getattr(kind, name)]
    return [*flags, *(name for name in _IN_CONTROLLER if getattr(kind, name) is not getattr(Driver, name))]


def _is_default(kind: type[Driver[Any, Any]], name: str) -> bool:
    replaced_by_consider = name == "viable" and kind.asynchronous and kind.consider is not Driver.consider
    return getattr(kind, name) is getattr(Driver, name) and not replaced_by_consider


def is_invalid_name(given: object) -> bool:
    """Whether the value is not a valid driver name."""
    try:
        TypeAdapter(DriverName).validate_python(given)
    except ValidationError:
        return True
    return False


def _is_coroutine(method: object) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


_SYNCHRONOUS = tuple(
    name for name, method in vars(Driver).items() if inspect.isfunction(method) and not _is_coroutine(method)
)
"""Methods that must not be async."""
