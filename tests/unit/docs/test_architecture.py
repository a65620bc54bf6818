"""The page about the architecture names files that exist, and every folder of the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CODE = ROOT / "driver" / "parley"

FILES = sorted(set(re.findall(r"(?<![\w/-])((?:[\w-]+/)+[\w-]+\.(?:py|md))", PAGE)))


def test_it_names_files() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_it_names_exists(name: str) -> None:
    assert (ROOT / name).is_file() or (CODE / name).is_file()


def test_it_names_every_package() -> None:
    packages = {path.parent.name for path in CODE.glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}`" not in PAGE and f"/{name}`" not in PAGE} == set()
