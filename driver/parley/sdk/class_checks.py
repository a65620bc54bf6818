"""What is wrong with a driver's class before it is made: models are missing, or methods are async."""

import inspect
from typing import Any

from parley.sdk.driver import Driver
from parley.sdk.values import Parameters

_REQUIRED = ("parameters", "class_parameters")


def class_fault(kind: type[Driver[Any, Any]]) -> str:
    """Why the class is no driver, and what to change; "" if it may be one."""
    for name in _REQUIRED:
        model = getattr(kind, name, None)
        if not (isinstance(model, type) and issubclass(model, Parameters)):
            given = "is missing" if model is None else f"is {model!r}"
            return f"{name} {given}: set it to a class that derives from parley.sdk.Parameters, or NoParameters"
    coroutines = [name for name in _AT_ONCE if _is_coroutine(getattr(kind, name))]
    if coroutines:
        return (
            f"{' and '.join(coroutines)} must not be async: Parley calls it without await, and nothing of it runs"
        )
    return ""


def _is_coroutine(method: object) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


_AT_ONCE = tuple(
    name for name, method in vars(Driver).items() if inspect.isfunction(method) and not _is_coroutine(method)
)
"""Methods that return at once."""
