"""The docs of two releases, published as releasing.md says, to a repository of our own: both are there, the newest
is the default, and the older one can be removed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from tests.support.checkout import ROOT, Shell
from tests.support.shown import below

_PUBLISH, _DEFAULT, _REMOVE = range(1, 4)
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a manager"), ("EMAIL", "manager@example.com"))
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """An empty repository."""
    subprocess.run(["git", "init", "--quiet", "--bare", "origin.git"], cwd=tmp_path, check=True)
    return tmp_path / "origin.git"


@pytest.fixture
def shell(origin: Path, tmp_path: Path) -> Shell:
    """In a clone of this checkout, with that origin and this environment."""
    if not os.environ.get("CI") and importlib.util.find_spec("mike") is None:
        pytest.skip("the docs group is not installed: `make docs` installs it")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), "checkout"], cwd=tmp_path, check=True)
    folder = tmp_path / "checkout"
    subprocess.run(["git", "remote", "set-url", "origin", str(origin)], cwd=folder, check=True)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return Shell(folder, {**_WHO, "NO_MKDOCS_2_WARNING": "1"})


def test_each_version_has_its_docs_and_the_newest_is_the_default(shell: Shell, origin: Path) -> None:
    def published(path: str) -> str:
        shown = subprocess.run(["git", "show", f"gh-pages:{path}"], cwd=origin, capture_output=True, check=True)
        return shown.stdout.decode()

    def versions() -> dict[str, list[str]]:
        return {one["version"]: one["aliases"] for one in orjson.loads(published("versions.json"))}

    commands = below((ROOT / "docs" / "releasing.md").read_text(), "Versions of the docs")
    shell(commands[0])
    shell(commands[_PUBLISH].replace("0.2.0", "0.1.0"))
    shell(commands[_PUBLISH])
    shell(commands[_DEFAULT])
    assert versions() == {"0.2.0": ["latest"], "0.1.0": []}
    assert "latest/" in published("index.html")
    for version in ("0.1.0", "0.2.0", "latest"):
        assert "negotiat" in published(f"{version}/index.html")
    shell(commands[_REMOVE])
    assert versions() == {"0.2.0": ["latest"]}
    with pytest.raises(subprocess.CalledProcessError):
        published("0.1.0/index.html")
