"""krew installs the plugin from a release's files, and the plugin then starts `kubectl parley` from its wheel."""

import subprocess
from pathlib import Path

import pytest
from tests.cluster import cached
from tools import release

ROOT = Path(__file__).parents[3]


@pytest.fixture
def krew() -> Path:
    return cached.require("krew")


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
