"""A release with its image, as docs/releasing.md has the command: an OCI archive and its bill of materials."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.shown import shown

from parley_devcluster import debian_image
from parley_devcluster.engine import Engine

CHECKOUT = Path(__file__).parents[3]
PAGE = (CHECKOUT / "docs" / "releasing.md").read_text()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This checkout, with one commit that has all of its files."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@example.com")
    root = tmp_path / "checkout"
    files = _run(CHECKOUT, "git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in (each for each in files if (CHECKOUT / each).is_file()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, root / name)
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "All")):
        _run(root, "git", *command)
    return root


def _run(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def _inside(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    content = archive.extractfile(name)
    assert content is not None
    return dict(json.load(content))


def _blob(archive: tarfile.TarFile, digest: str) -> dict[str, Any]:
    return _inside(archive, f"blobs/{digest.replace(':', '/')}")


def test_a_release_has_its_image_and_what_that_consists_of(container_engine: Engine, checkout: Path) -> None:
    base = debian_image.ensure(container_engine, debian_image.PYTHON)
    (inspected,) = json.loads(container_engine.run("image", "inspect", base))
    named = inspected["RepoDigests"][0]
    command = re.sub(r"--base \S+", f"--base {named}", shown(PAGE, "python -m tools.release"))

    made = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stderr
    to = checkout / "dist" / "release"
    (image,) = to.glob("parley-0.2.0-image-*.tar")
    listed = {line.split()[1] for line in (to / "SHA256SUMS").read_text().splitlines()}
    assert {image.name, f"{image.stem}.cdx.json"} <= listed
    with tarfile.open(image) as archive:
        (found,) = _inside(archive, "index.json")["manifests"]
        configuration = _blob(archive, _blob(archive, found["digest"])["config"]["digest"])
    assert image.stem.rpartition("-")[2] == configuration["architecture"]
    assert configuration["config"]["Cmd"] == ["parley", "controller"]
    inventory = json.loads((to / f"{image.stem}.cdx.json").read_text())
    assert "pkg:pypi/parley@0.2.0" in {component["purl"] for component in inventory["components"]}
    container_engine.run("image", "rm", "parley.dev/parley:0.2.0")
    container_engine.run("load", "--input", str(image))
    assert container_engine.run("run", "--rm", "parley.dev/parley:0.2.0", "parley", "version").strip() == "0.2.0"
    container_engine.run("image", "rm", "parley.dev/parley:0.2.0")
