"""Checks a driver's class before it is instantiated: its name, missing models or methods, async methods."""

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from parley.api.models import DriverName
from parley.sdk.checks import shown
from parley.sdk.driver import Driver
from parley.sdk.values import Parameters

_IN_CONTROLLER = ("see", "users_changed", "units", "viable_without", "reserves", "uses", "stranded", "capacity")
_REQUIRED = ("parameters", "class_parameters")
_VERSIONS = (("parameter_versions", "parameters"), ("class_parameter_versions", "class_parameters"))
_ABSTRACT = ("viable", "allocate", "deallocate", "restore", "forget")
"""Methods without a default."""


def class_fault(kind: type[Driver[Any, Any]]) -> str:
    """Why the class is not a valid driver, and what to change; "" if it is."""
    given = getattr(kind, "name", "")
    if is_invalid_name(given):
        return f"name={given!r} must be a DNS subdomain of at most 63 characters, such as disks.example.com"
    for name in _REQUIRED:
        model = getattr(kind, name, None)
        if not _is_model(model):
            given = "is missing" if model is None else f"is {model!r}"
            return f"{name} {given}: set it to a class that derives from parley.sdk.Parameters, or NoParameters"
    for versions, newest in _VERSIONS:
        if fault := _versions_fault(versions, getattr(kind, versions), newest, getattr(kind, newest)):
            return fault
    coroutines = [name for name in _SYNCHRONOUS if _is_coroutine(getattr(kind, name))]
    if coroutines:
        return (
            f"{' and '.join(coroutines)} must not be async: Parley calls it without await, and nothing of it runs"
        )
    if missing := [name for name in _ABSTRACT if _is_default(kind, name)]:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        return f"{' and '.join(missing)} {are} missing: every driver has to write {them}"
    return ""


def _versions_fault(name: str, versions: object, newest_name: str, newest: type[Parameters]) -> str:
    """Why a driver would get parameters that are not of its newest model; "" if it would not."""
    if not isinstance(versions, Mapping) or not all(map(_is_model, versions.values())):
        return f"{name} is {shown(versions)}: set it to a mapping from apiVersion to classes like {newest_name}"
    *older, last = [*versions.values()] or [newest]
    if last is not newest:
        text = f"{name} ends with {last.__name__}, and {newest_name} is {newest.__name__}"
        return f"{text}: put the newest version last"
    lost = next((model for model in older if model is not newest and model.newest is Parameters.newest), None)
    if lost is not None:
        text = f"write newest() in {lost.__name__}, to return the same parameters as {newest.__name__}"
        return f"{name} has {lost.__name__}, which is not the newest version: {text}"
    return ""


def only_in_controller(kind: type[Driver[Any, Any]]) -> list[str]:
    """The members that the class overrides, and that have no effect for a standalone driver: its claims are one
    unit each, reserve nothing, leave no data on nodes, and so on."""
    flags = [name for name in ("sees_pods", "leaves_data") if getattr(kind, name)]
    return [*flags, *(name for name in _IN_CONTROLLER if getattr(kind, name) is not getattr(Driver, name))]


def _is_model(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, Parameters)


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
