"""The docs of two releases, published with mike as releasing.md says, to a repository of our own: both are there,
the newest is the default, and one can be removed."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parents[3]
_BRANCH = "gh-pages"
_WHO = {"GIT_AUTHOR_NAME": "a manager", "GIT_AUTHOR_EMAIL": "manager@example.com"}
_COMMITTER = {"GIT_COMMITTER_NAME": "a manager", "GIT_COMMITTER_EMAIL": "manager@example.com"}

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command in a clone of this checkout whose origin is a new bare repository."""
    if not os.environ.get("CI") and importlib.util.find_spec("mike") is None:
        pytest.skip("the docs group is not installed: `make docs` installs it")
    environment = {**os.environ, **_WHO, **_COMMITTER, "NO_MKDOCS_2_WARNING": "1"}

    def runs(*command: str, folder: Path = tmp_path / "checkout") -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    runs("git", "init", "--quiet", "--bare", "origin.git", folder=tmp_path)
    runs("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), "checkout", folder=tmp_path)
    runs("git", "remote", "set-url", "origin", str(tmp_path / "origin.git"))
    return runs


def test_each_version_has_its_docs_and_the_newest_is_the_default(run: Run, tmp_path: Path) -> None:
    mike = (str(Path(sys.executable).with_name("mike")),)

    def published(path: str) -> str:
        return run("git", "show", f"{_BRANCH}:{path}", folder=tmp_path / "origin.git")

    run(*mike, "deploy", "--push", "0.1.0", "latest")
    run(*mike, "set-default", "--push", "latest")
    run(*mike, "deploy", "--push", "0.2.0", "latest")
    versions = {one["version"]: one["aliases"] for one in orjson.loads(published("versions.json"))}
    assert versions == {"0.2.0": ["latest"], "0.1.0": []}
    assert "latest/" in published("index.html")
    for version in ("0.1.0", "0.2.0", "latest"):
        assert "negotiated" in published(f"{version}/index.html").lower()
    run(*mike, "delete", "--push", "0.1.0")
    assert [one["version"] for one in orjson.loads(published("versions.json"))] == ["0.2.0"]
    assert "0.1.0" not in run("git", "ls-tree", "--name-only", _BRANCH, folder=tmp_path / "origin.git").split()
