"""Pods of these tests go to the scheduler that speaks to the extender path, if they do not say otherwise."""

import pytest


@pytest.fixture
def scheduling_path() -> str:
    """See the fixture of the same name for all paths."""
    return "extender"
