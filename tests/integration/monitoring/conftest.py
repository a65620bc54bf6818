"""Prometheus' own tool."""

import os
from pathlib import Path

import pytest

from parley_devcluster import binaries, versions


@pytest.fixture(scope="session")
def promtool() -> Path:
    """As `make machine` has built it: three minutes are too long for a test."""
    found = binaries.find(versions.ALERTS, versions.modules(), os.environ)
    if found.missing and os.environ.get("CI") == "true":
        pytest.fail("CI has to run promtool, but it is not in the cache: make machine builds it")
    if found.missing:
        pytest.skip("promtool is not in the cache: make machine builds it")
    return found.paths["promtool"]
