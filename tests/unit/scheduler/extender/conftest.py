"""Pods of these tests go to the scheduler that speaks to the extender door, if they do not say otherwise."""

import pytest


@pytest.fixture
def door() -> str:
    """See the fixture of the same name for all doors."""
    return "extender"
