"""helm, for the tests of the chart."""

import os
from pathlib import Path

import pytest

from parley_devcluster import binaries, versions


@pytest.fixture(scope="session", autouse=True)
def helm() -> Path:
    """Skips where it is not built: `make machine` does it. Under CI it is, or that is a failure."""
    found = binaries.find(versions.INSTALLER, versions.modules(), os.environ).paths.get("helm")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("CI has to run the tests of the chart, and helm is not there: `make machine` builds it")
    if found is None:
        pytest.skip("helm is not there: `make machine` builds it")
    return found
