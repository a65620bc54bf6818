"""krew installs the plugin from a release's files, and the plugin then starts `kubectl parley` from its wheel."""

import os
import subprocess
from pathlib import Path

import pytest
from tools import release

from parley_devcluster import binaries, versions

ROOT = Path(__file__).parents[3]


@pytest.fixture
def krew() -> Path:
    """As `make machine` has built it."""
    found = binaries.find(versions.PLUGINS, versions.modules(), os.environ)
    if found.missing and os.environ.get("CI") == "true":
        pytest.fail("CI has to run krew, but it is not in the cache: make machine builds it")
    if found.missing:
        pytest.skip("krew is not in the cache: make machine builds it")
    return found.paths["krew"]


def test_krew_installs_what_a_release_has(krew: Path, tmp_path: Path) -> None:
    version = release.version_of((ROOT / "pyproject.toml").read_text())
    made = tmp_path / "release"
    release.build(ROOT, version, made, "https://releases.example.com")
    uvx = tmp_path / "programs" / "uvx"
    uvx.parent.mkdir()
    uvx.write_text('#!/bin/sh\necho "$@"\n')
    uvx.chmod(0o755)
    folder = tmp_path / "krew"
    path = f"{folder / 'bin'}:{uvx.parent}:/usr/bin:/bin"
    environment = {"KREW_ROOT": str(folder), "HOME": str(tmp_path), "PATH": path}
    archive = made / f"kubectl-parley-{version}.tar.gz"

    subprocess.run(
        [krew, "install", f"--manifest={made / 'parley.yaml'}", f"--archive={archive}"],
        env=environment,
        check=True,
    )
    started = subprocess.check_output(["kubectl-parley", "explain", "pods"], env=environment, text=True)

    wheel = folder / "store" / "parley" / f"v{version}" / f"parley-{version}-py3-none-any.whl"
    assert wheel.is_file()
    assert started == f"--quiet --from {wheel} kubectl-parley explain pods\n"
