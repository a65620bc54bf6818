"""Programs that some tests run and no cluster needs. `make machine` builds them: it takes too long for a test."""

import os
from pathlib import Path

import pytest

from parley_devcluster import binaries, versions


def require(name: str) -> Path:
    """The program. Without it the test is skipped, or fails where CI should have it."""
    found = binaries.find((name,), versions.modules(), os.environ)
    if found.missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run {name}, but it is not in the cache: make machine builds it")
    if found.missing:
        pytest.skip(f"{name} is not in the cache: make machine builds it")
    return found.paths[name]
