"""Imports the class that `--driver module:Class` names, and checks that it is a node driver."""

import importlib
from typing import Any

from parley_kubelet.configuration import driver_name
from parley_kubelet.hooks import NodeDriver


class LoadError(Exception):
    """Raised if --driver does not name a node driver that can be served."""


def load_driver(option: str) -> type[NodeDriver[Any, Any]]:
    """The driver's class. Raises LoadError, whose message names the remedy."""
    module_name, _, class_name = option.partition(":")
    if not module_name or not class_name:
        raise LoadError(f"--driver={option!r}: write it as module:Class, such as scratch_node:Scratch")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise LoadError(
            f"--driver={option!r}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}):"
            " install it, or set PYTHONPATH to its folder"
        ) from error
    loaded = getattr(module, class_name, None)
    if not (isinstance(loaded, type) and issubclass(loaded, NodeDriver)):
        raise LoadError(
            f"--driver={option!r}: {class_name} of module {module_name!r} is not a subclass of"
            " parley_kubelet.hooks.NodeDriver: correct the name"
        )
    _check(option, loaded)
    return loaded


def _check(option: str, loaded: type[NodeDriver[Any, Any]]) -> None:
    for attribute in ("name", "handle", "settings"):
        if not hasattr(loaded, attribute):
            raise LoadError(f"--driver={option!r}: the class has no attribute {attribute!r}: add it")
    try:
        driver_name(loaded.name)
    except ValueError as error:
        raise LoadError(f"--driver={option!r}: name={loaded.name!r}: {error}") from None
