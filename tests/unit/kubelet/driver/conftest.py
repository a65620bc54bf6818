"""What tests of removal may not touch."""

from pathlib import Path

import pytest


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A tree that nobody may touch."""
    folder = tmp_path / "outside"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "file").write_text("canary")
    return folder
