"""Prometheus' own tool."""

from pathlib import Path

import pytest
from tests.cluster import cached


@pytest.fixture(scope="session")
def promtool() -> Path:
    return cached.require("promtool")
