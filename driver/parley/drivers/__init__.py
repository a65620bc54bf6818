"""The drivers that come with Parley, one file or folder each."""

from collections.abc import Mapping
from typing import Any

from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.drivers.workspace import WorkspaceDriver
from parley.sdk import Driver

BUILT_IN: Mapping[str, type[Driver[Any, Any]]] = {
    "device": DeviceDriver,
    "tokens": TokensDriver,
    "workspace": WorkspaceDriver,
}
"""The built-in drivers by the short names that commands accept."""


def built_in() -> list[Driver[Any, Any]]:
    """A new instance of each built-in driver, without state: the drivers that the controller runs by default."""
    return [driver() for driver in BUILT_IN.values()]
