"""A release: what it refuses, what it writes where, and the files that it makes of a checkout."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest
import yaml
from tests.support.shown import shown
from tools import release
from tools.files import checksum

ROOT = Path(__file__).parents[3]
DAY = date(2026, 12, 1)
CHANGELOG = "# Changelog\n\nNotable.\n\n## Unreleased\n\n- New.\n\n## 0.1.0 (2026-11-01)\n\n- First.\n"


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def author(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@example.com")


@pytest.fixture
def checkout(tmp_path: Path, author: None) -> Path:
    """A small repository with all that a release touches, of version 0.1.0."""
    root = tmp_path / "checkout"
    for name in ("driver/parley/__init__.py", "kubelet-plugin/parley_kubelet/__init__.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text('"""A package."""\n')
    (root / "devcluster" / "parley_devcluster").mkdir(parents=True)
    (root / "devcluster" / "parley_devcluster" / "__init__.py").write_text('"""A package."""\n')
    (root / "deploy" / "chart" / "parley").mkdir(parents=True)
    (root / "deploy" / "chart" / "parley" / "Chart.yaml").write_text(
        "name: parley\nversion: 0.1.0\nappVersion: 0.1.0\n"
    )
    top = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", ".gitignore")
    for name in (*top, "devcluster/pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    for name in ("pyproject.toml", "devcluster/pyproject.toml"):
        (root / name).write_text(release.with_version((root / name).read_text(), "0.1.0"))
    shutil.copytree(ROOT / "deploy" / "krew", root / "deploy" / "krew")
    shutil.copytree(ROOT / "deploy" / "base", root / "deploy" / "base")
    shutil.copytree(ROOT / "crds", root / "crds")
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    (root / "docs" / "tutorials").mkdir(parents=True)
    for name in ("install.md", "tutorials/first-driver.md"):
        (root / "docs" / name).write_text(release.with_image((ROOT / "docs" / name).read_text(), "0.1.0"))
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "All")
    git(root, "tag", "v0.1.0")
    return root


def without_image(command: str) -> list[str]:
    """The arguments of the page's command, but for its image: tests/integration/container builds that one."""
    return re.sub(r"--base \S+", "--no-image", command).split()[1:]


def test_a_dry_run_makes_the_files_and_changes_nothing(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    command = shown((ROOT / "docs" / "releasing.md").read_text(), "python -m tools.release")

    made = subprocess.run(
        [sys.executable, *without_image(command), "--published-at", "https://releases.example.com"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stderr
    to = checkout / "dist" / "release"
    assert {file.name for file in to.iterdir()} == {
        "parley-0.2.0-py3-none-any.whl",
        "parley_devcluster-0.2.0-py3-none-any.whl",
        "parley-0.2.0-manifests.tar.gz",
        "kubectl-parley-0.2.0.tar.gz",
        "parley.yaml",
        "parley-0.2.0.tgz",
        "parley-0.2.0-py3-none-any.cdx.json",
        "SHA256SUMS",
    }
    assert "dry run: nothing was committed or tagged" in made.stdout
    assert git(checkout, "rev-parse", "HEAD") == before
    assert git(checkout, "tag") == "v0.1.0"
    assert git(checkout, "status", "--porcelain") == ""
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=to, check=True)
    manifest = yaml.safe_load((to / "parley.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    assert manifest["spec"]["version"] == "v0.2.0"
    assert platform["sha256"] == checksum(to / "kubectl-parley-0.2.0.tar.gz")
    assert platform["uri"] == "https://releases.example.com/v0.2.0/kubectl-parley-0.2.0.tar.gz"
    with tarfile.open(to / "kubectl-parley-0.2.0.tar.gz") as archive:
        assert archive.getmember(platform["bin"]).mode & 0o111
        assert "parley-0.2.0-py3-none-any.whl" in archive.getnames()
    with tarfile.open(to / "parley-0.2.0-manifests.tar.gz") as archive:
        assert "parley-0.2.0/crds/resourceclaims.yaml" in archive.getnames()
    with tarfile.open(to / "parley-0.2.0.tgz") as archive:
        chart = archive.extractfile("parley/Chart.yaml")
        assert chart is not None
        assert yaml.safe_load(chart)["version"] == "0.2.0"
    with zipfile.ZipFile(to / "parley-0.2.0-py3-none-any.whl") as wheel:
        assert b"Version: 0.2.0\n" in wheel.read("parley-0.2.0.dist-info/METADATA")


def test_a_release_is_a_commit_and_a_tag_on_the_branch_at_hand(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "build", lambda clone, version, to, address, image: [])

    assert release.main(["0.2.0", "--no-image"], checkout) == 0, capsys.readouterr().err

    assert git(checkout, "log", "-1", "--format=%s") == "Release 0.2.0"
    assert git(checkout, "branch", "--show-current") == "main"
    assert git(checkout, "rev-parse", "v0.2.0^{commit}") == git(checkout, "rev-parse", "HEAD")
    for name in ("pyproject.toml", "devcluster/pyproject.toml"):
        assert release.version_of((checkout / name).read_text()) == "0.2.0"
    chart = yaml.safe_load((checkout / "deploy" / "chart" / "parley" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("0.2.0", "0.2.0")
    install = (checkout / "docs" / "install.md").read_text()
    assert '  tag: "0.2.0"\n' in install
    assert "-t registry.example.com/parley:0.2.0 ." in install
    assert "oci-archive:parley-0.2.0-image-amd64.tar" in install
    assert "0.1.0" not in install
    assert "FROM registry.example.com/parley:0.2.0\n" in (checkout / "docs/tutorials/first-driver.md").read_text()
    assert git(checkout, "status", "--porcelain") == ""


def test_the_unreleased_entries_become_the_versions() -> None:
    assert release.released(CHANGELOG, "0.2.0", DAY) == (
        "# Changelog\n\nNotable.\n\n## Unreleased\n\n"
        "## 0.2.0 (2026-12-01)\n\n- New.\n\n"
        "## 0.1.0 (2026-11-01)\n\n- First.\n"
    )


def test_versions_have_an_order() -> None:
    versions = ["0.9.0", "0.10.0-rc.1", "0.10.0-rc.2", "0.10.0", "1.0.0"]

    assert sorted([*versions[3:], *versions[:3]], key=release.order) == versions
    assert release.python_version("0.10.0-rc.2") == "0.10.0rc2"
    assert release.version_of(release.with_version('version = "0.1.0"', "0.10.0-rc.2")) == "0.10.0-rc.2"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.2", "'0.2' is no version: give MAJOR.MINOR.PATCH, or MAJOR.MINOR.PATCH-rc.N"),
        ("0.1.0", "0.1.0 is not newer than 0.1.0"),
        ("0.0.9", "0.0.9 is not newer than 0.1.0"),
    ],
)
def test_versions_that_are_refused(
    checkout: Path, version: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([version, "--no-image"], checkout) == 1
    assert capsys.readouterr().err == f"error: {words}\n"


def test_the_first_release_has_the_version_that_the_tree_began_with(checkout: Path) -> None:
    git(checkout, "tag", "--delete", "v0.1.0")

    release.check(checkout, "0.1.0")


DIGEST = f"python@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (
            "python:3.11-slim",
            "--base python:3.11-slim does not name an image by its digest: give NAME@sha256:DIGEST"
            " (`docker buildx imagetools inspect NAME` shows the digest)",
        ),
        (
            DIGEST,
            "no container engine works here (docker, podman, nerdctl): install one, and start its daemon if it has"
            " one, or leave the image out with --no-image",
        ),
    ],
    ids=["a base without a digest", "no container engine"],
)
def test_images_that_are_refused(
    checkout: Path, base: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = checkout.parent / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(programs))

    assert release.main(["0.2.0", "--base", base], checkout) == 1
    assert capsys.readouterr().err == f"error: {words}\n"
    assert not (checkout / "dist").exists()


def test_whoever_makes_a_release_decides_about_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        release.main(["0.2.0", "--dry-run"])
    assert "one of the arguments --base --no-image is required" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["changes", "tag", "entries", "leftovers"])
def test_checkouts_that_are_refused(checkout: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = {
        "changes": "the checkout has changes that are not committed: commit or stash them",
        "tag": "the tag v0.2.0 exists",
        "entries": "CHANGELOG.md has no entries under '## Unreleased': "
        "write what users and operators have to know",
        "leftovers": f"{checkout / 'dist' / 'release'} is not empty: remove it",
    }
    if fault == "changes":
        (checkout / "README.md").write_text("Changed.\n")
    elif fault == "tag":
        git(checkout, "tag", "v0.2.0")
    elif fault == "entries":
        (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("- New.\n\n", ""))
        git(checkout, "commit", "--quiet", "--all", "--message", "Nothing new")
    else:
        (checkout / "dist" / "release").mkdir(parents=True)
        (checkout / "dist" / "release" / "old.whl").touch()

    assert release.main(["0.2.0", "--no-image"], checkout) == 1
    assert capsys.readouterr().err == f"error: {words[fault]}\n"


def test_the_changelog_of_the_project_can_be_released() -> None:
    assert "## 9.9.9 (2026-12-01)\n\n" in release.released((ROOT / "CHANGELOG.md").read_text(), "9.9.9", DAY)


def test_the_plugin_of_krew_names_what_it_needs(tmp_path: Path) -> None:
    program = tmp_path / "kubectl-parley"
    shutil.copy(ROOT / "deploy" / "krew" / "kubectl-parley", program)
    wheel = tmp_path / "parley-0.2.0-py3-none-any.whl"
    wheel.touch()
    found = tmp_path / "bin"
    found.mkdir()
    for name in ("dirname", "readlink", "sh"):
        (found / name).symlink_to(str(shutil.which(name)))
    environment = {**os.environ, "PATH": str(found)}

    refused = subprocess.run([program, "explain"], env=environment, capture_output=True, text=True, check=False)
    (found / "uvx").write_text('#!/bin/sh\necho "$@"\n')
    (found / "uvx").chmod(0o755)
    ran = subprocess.run([program, "explain"], env=environment, capture_output=True, text=True, check=True)

    assert refused.returncode == 1
    assert refused.stderr == f"kubectl parley needs uv or pipx on your PATH to run {wheel}: install one of them.\n"
    assert ran.stdout == f"--quiet --from {wheel} kubectl-parley explain\n"
