"""Whether this machine has a browser for tests."""

import os
import shutil
from pathlib import Path

import pytest

from parley_devcluster import debian

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def require_browser() -> Path:
    """The program. Skips with the reason where there is none; under CI that is a failure."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None:
        return Path(found)
    reason = debian.absence(list(debian.BROWSER), who_needs=debian.TESTS)
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI has to look at the page: {reason}")
    pytest.skip(reason)
