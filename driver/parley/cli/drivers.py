"""Resolves the driver that a command names: one that comes with Parley, by its short name, or any class."""

import importlib
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from parley.drivers import BUILT_IN
from parley.sdk import Driver
from parley.sdk.class_checks import class_fault, is_invalid_name


def driver_class(text: str) -> type[Driver[Any, Any]]:
    """The class that `device` or `package.module:Class` names. Raises BadParameter, which typer shows."""
    if text in BUILT_IN:
        return BUILT_IN[text]
    module, _, name = text.partition(":")
    if not name:
        known = ", ".join(sorted(BUILT_IN))
        raise typer.BadParameter(f"{text!r} is not known: give one of {known}, or MODULE:CLASS")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: a driver is often a file in the folder at hand
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise typer.BadParameter(
            f"{text!r}: module {module!r} cannot be imported: {error}: install it, or run this in its folder"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise typer.BadParameter(
            f"{text!r}: {module} has no class {name!r} that derives from parley.sdk.Driver: name the driver's "
            "class"
        )
    if fault := _fault(found):
        raise typer.BadParameter(f"{text!r}: {fault}")
    return found


def driver_classes(texts: Iterable[str]) -> list[type[Driver[Any, Any]]]:
    """The classes that the texts name, each once. Raises BadParameter, also if two drivers have the same name."""
    by_name: dict[str, tuple[str, type[Driver[Any, Any]]]] = {}
    for text in texts:
        found = driver_class(text)
        other, known = by_name.setdefault(found.name, (text, found))
        if known is not found:
            raise typer.BadParameter(
                f"{text!r} and {other!r} both have name={found.name!r}: run one of them, or rename yours"
            )
    return [found for _, found in by_name.values()]


def driver_name(text: str) -> str:
    """The name of the driver that `text` means: as for `driver_class`, or the name itself. Raises BadParameter."""
    if text in BUILT_IN or ":" in text:
        return driver_class(text).name
    if "." not in text or is_invalid_name(text):
        known = ", ".join(sorted(BUILT_IN))
        raise typer.BadParameter(
            f"{text!r} is not known: give one of {known}, MODULE:CLASS, or a name like disks.example.com"
        )
    return text


def _fault(found: type[Driver[Any, Any]]) -> str:
    """Why the class can't be run, and what to change; "" if it can."""
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        return f"it must be made without arguments ({error}): give them defaults, or derive a class that does"
    return class_fault(found)
