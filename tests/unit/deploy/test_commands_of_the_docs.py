"""The helm commands and values of the docs: helm takes each of them, with the chart of this checkout."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tools import release

from parley_devcluster import manifests

ROOT = Path(__file__).parents[3]
INSTALL, EXTENDER = ((ROOT / "docs" / page).read_text() for page in ("install.md", "extender.md"))
VALUES = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", INSTALL, flags=re.DOTALL)
INSTALLING = re.findall(r"(?m)^helm ((?:install|upgrade) .*)$", INSTALL + EXTENDER)
PLATFORMS = re.findall(r"`--values (deploy/chart/\S+)`", INSTALL)


def run(helm: Path, arguments: list[str], folder: Path) -> str:
    done = subprocess.run([str(helm), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the docs' paths are right, with the docs' first file of values."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "values.yaml").write_text(VALUES[0])
    return tmp_path


def test_there_are_some() -> None:
    assert len(INSTALLING) == 4
    assert len(PLATFORMS) == 4
    assert len(VALUES) == 2


@pytest.mark.parametrize("command", INSTALLING)
def test_what_installs_renders(helm: Path, checkout: Path, command: str) -> None:
    _, *arguments = (word for word in shlex.split(command) if word not in ("--wait", "--install"))

    rendered = run(helm, ["template", *arguments, "--kube-version", "v1.37.0"], checkout)

    version = release.version_of((ROOT / "pyproject.toml").read_text())
    assert f"image: registry.example.com/parley:{version}" in rendered
    assert "glob: /dev/fuse*" in rendered


@pytest.mark.parametrize("values", PLATFORMS)
def test_values_of_platforms_go_beside_ones_own(helm: Path, checkout: Path, values: str) -> None:
    own = ["--values", "values.yaml", "--values", values]

    run(helm, ["template", manifests.RELEASE, "deploy/chart/parley", *own, "--kube-version", "v1.37.0"], checkout)


def test_values_for_hooks_of_ones_own_render(helm: Path, checkout: Path) -> None:
    (checkout / "values.yaml").write_text(VALUES[1])
    arguments = ["template", manifests.RELEASE, "deploy/chart/parley", "--values", "values.yaml"]

    rendered = run(helm, [*arguments, "--kube-version", "v1.37.0"], checkout)

    assert "--driver=scratch_node:ScratchNode" in rendered
    assert "mountPath: /var/lib/kubelet/plugins/scratch.example.com" in rendered
    assert "      - workspace.parley.dev\n      - scratch.example.com\n    verbs: [publish]" in rendered


def test_values_for_a_driver_of_ones_own_render(helm: Path, checkout: Path) -> None:
    page = (ROOT / "docs" / "tokens-driver.md").read_text()
    (values,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", page, flags=re.DOTALL)
    (checkout / "values.yaml").write_text(values)
    arguments = ["template", manifests.RELEASE, "deploy/chart/parley", "--values", "values.yaml"]

    rendered = run(helm, [*arguments, "--kube-version", "v1.37.0"], checkout)

    assert "serviceAccountName: parley-driver-licences.example.com" in rendered
    assert "image: registry.example.com/licences:1" in rendered
    assert "licences:Licences" in rendered


def test_a_wrong_value_is_refused_in_these_words(helm: Path) -> None:
    command, told = re.findall(r"(?m)^\$ helm (lint .*)\n(.*)$", INSTALL)[0]

    done = subprocess.run(
        [str(helm), *shlex.split(command)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert told in done.stdout
