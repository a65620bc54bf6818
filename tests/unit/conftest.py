"""The order of unit tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that kill at every write come first: they fork thousands of times, and a fork of a process that has
    grown to 900 MB costs half as much again."""
    items.sort(key=lambda item: "kill" not in item.nodeid)
