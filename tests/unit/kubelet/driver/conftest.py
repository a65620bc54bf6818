"""What tests of removal may not touch."""

from pathlib import Path

import pytest
from tests.support.attacked import bystander


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A tree that nobody may touch."""
    return bystander(tmp_path / "outside")
