"""A release with its image, as docs/releasing.md has the command: an OCI archive and its bill of materials."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.registry import Registry
from tests.support.shell import typed
from tests.support.shown import shown

from parley_devcluster import debian_image
from parley_devcluster.engine import Engine

CHECKOUT = Path(__file__).parents[3]
PAGE = (CHECKOUT / "docs" / "releasing.md").read_text()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This checkout, with one commit that has all of its files."""
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Somebody")
            patch.setenv(f"GIT_{role}_EMAIL", "somebody@example.com")
        yield _copied(tmp_path_factory.mktemp("release") / "checkout")


def _copied(root: Path) -> Path:
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


@pytest.fixture(scope="module")
def released(container_engine: Engine, checkout: Path) -> Path:
    """The image of a release that was made as the page says."""
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
    (image,) = (checkout / "dist" / "release").glob("parley-0.2.0-image-*.tar")
    return image


def test_a_release_has_its_image_and_what_that_consists_of(container_engine: Engine, released: Path) -> None:
    to = released.parent
    listed = {line.split()[1] for line in (to / "SHA256SUMS").read_text().splitlines()}
    assert {released.name, f"{released.stem}.cdx.json"} <= listed
    with tarfile.open(released) as archive:
        (found,) = _inside(archive, "index.json")["manifests"]
        configuration = _blob(archive, _blob(archive, found["digest"])["config"]["digest"])
    assert released.stem.rpartition("-")[2] == configuration["architecture"]
    assert configuration["config"]["Cmd"] == ["parley", "controller"]
    inventory = json.loads((to / f"{released.stem}.cdx.json").read_text())
    assert "pkg:pypi/parley@0.2.0" in {component["purl"] for component in inventory["components"]}
    container_engine.run("image", "rm", "parley.dev/parley:0.2.0")
    container_engine.run("load", "--input", str(released))
    assert container_engine.run("run", "--rm", "parley.dev/parley:0.2.0", "parley", "version").strip() == "0.2.0"
    container_engine.run("image", "rm", "parley.dev/parley:0.2.0")


@pytest.mark.parametrize("page", ["releasing", "install"])
async def test_the_image_is_pushed_as_it_is(
    page: str, released: Path, checkout: Path, plain_http: dict[str, str]
) -> None:
    if not shutil.which("skopeo") and os.environ.get("CI") != "true":
        pytest.skip("skopeo is not installed: `make machine` installs it, as root on Debian")
    text = (checkout / "docs" / f"{page}.md").read_text()
    (command,) = set(re.findall(r"skopeo copy [^`\n]+", text))
    (named,) = re.findall(r"oci-archive:(\S+) ", command)
    if named != str(released.relative_to(checkout)):
        (checkout / named).unlink(missing_ok=True)
        (checkout / named).hardlink_to(released)
    registry = Registry()

    async with registry.serving() as address:
        await asyncio.to_thread(typed, command, checkout, {**plain_http, "HTTP_PROXY": f"http://{address}"})

    with tarfile.open(released) as archive:
        (found,) = _inside(archive, "index.json")["manifests"]
    (pushed,) = registry.manifests.values()
    assert f"sha256:{hashlib.sha256(pushed).hexdigest()}" == found["digest"]
    if "--digestfile" in command:
        assert (checkout / "digest").read_text().strip() == found["digest"]
