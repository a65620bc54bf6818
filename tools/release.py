"""Makes a release: version, changelog, tag, files to publish.

Everything happens in a clone, so that a release that fails leaves nothing behind. docs/releasing.md says what is
made and what is left to whoever publishes it. Needs git, hatchling from the development environment and, for the
image, a container engine.
"""

import argparse
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from tools import sbom
from tools.files import Refused, checksum, run, write_sums
from tools.release_image import ReleaseImage

ROOT = Path(__file__).parents[1]
UNRELEASED = "## Unreleased"
PUBLISHED_AT = "RELEASES"
"""In the krew manifest, if nobody says where."""
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-rc\.(\d+))?")

Edit = Callable[[str, str], str]


def order(version: str) -> tuple[int, int, int, float]:
    """Sorts versions; a release candidate comes before its version. Raises Refused for what is none."""
    if not (found := VERSION.fullmatch(version)):
        raise Refused(f"{version!r} is no version: give MAJOR.MINOR.PATCH, or MAJOR.MINOR.PATCH-rc.N")
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch), float(candidate) if candidate else float("inf")


def version_of(pyproject: str) -> str:
    """The version in the text of a pyproject.toml, in the form of a tag."""
    (version,) = re.findall(r'(?m)^version = "([^"]+)"$', pyproject)
    return re.sub(r"rc(\d+)$", r"-rc.\1", version)


def python_version(version: str) -> str:
    """As wheels are named: 1.0.0-rc.1 is 1.0.0rc1."""
    return version.replace("-rc.", "rc")


def with_version(pyproject: str, version: str) -> str:
    """The text of a pyproject.toml with this version."""
    return re.sub(r'(?m)^version = "[^"]+"$', f'version = "{python_version(version)}"', pyproject, count=1)


def with_chart_version(chart: str, version: str) -> str:
    """The text of a Chart.yaml with this version of the chart and of the program."""
    return re.sub(r"(?m)^(version|appVersion): .*$", rf'\1: "{version}"', chart)


def with_image(page: str, version: str) -> str:
    """The text of a page that names the image (in commands, a Dockerfile, values, a kustomization), with this
    version there."""
    before = r'registry\.example\.com/parley:|parley-(?=[^ ]+-image-)|^  tag: "|parley, newTag: "'
    return re.sub(rf"(?m)({before})\d+\.\d+\.\d+(-rc\.\d+)?", rf"\g<1>{version}", page)


def released(changelog: str, version: str, day: date) -> str:
    """The changelog with its unreleased entries under the version. Raises Refused if there are none."""
    head, found, tail = changelog.partition(f"{UNRELEASED}\n")
    entries, next_, rest = tail.partition("\n## ")
    if not found or not entries.strip():
        raise Refused(
            f"CHANGELOG.md has no entries under {UNRELEASED!r}: write what users and operators have to know"
        )
    return f"{head}{UNRELEASED}\n\n## {version} ({day.isoformat()})\n\n{entries.strip()}\n{next_}{rest}"


def edits(root: Path, version: str, day: date) -> dict[Path, str]:
    """The new text of every file that has a version."""
    new: dict[Path, Edit] = {root / name: with_version for name in ("pyproject.toml", "devcluster/pyproject.toml")}
    new |= dict.fromkeys(root.glob("deploy/chart/*/Chart.yaml"), with_chart_version)
    new |= {root / "docs" / page: with_image for page in ("install.md", "tutorials/first-driver.md")}
    texts = {file: edit(file.read_text(), version) for file, edit in new.items()}
    changelog = root / "CHANGELOG.md"
    return texts | {changelog: released(changelog.read_text(), version, day)}


def check(root: Path, version: str) -> None:
    """Raises Refused where a release can't begin."""
    present = version_of((root / "pyproject.toml").read_text())
    if order(version) <= order(present) and not _first(root, version, present):
        raise Refused(f"{version} is not newer than {present}")
    if run(["git", "status", "--porcelain"], root):
        raise Refused("the checkout has changes that are not committed: commit or stash them")
    if run(["git", "tag", "--list", f"v{version}"], root):
        raise Refused(f"the tag v{version} exists")


def _first(root: Path, version: str, present: str) -> bool:
    """Whether it is the first release: the version that the tree began with, and no tag yet."""
    return version == present and not run(["git", "tag", "--list", "v*"], root)


def record(clone: Path, version: str, day: date) -> None:
    """Writes the version everywhere, commits and tags."""
    for file, text in edits(clone, version, day).items():
        file.write_text(text)
    run(["git", "commit", "--quiet", "--all", "--message", f"Release {version}"], clone)
    run(["git", "tag", "--annotate", f"v{version}", "--message", f"Parley {version}"], clone)


def build(
    clone: Path, version: str, to: Path, address: str = PUBLISHED_AT, image: ReleaseImage | None = None
) -> list[Path]:
    """Builds all files of the release into the folder `to`, and returns them."""
    to.mkdir(parents=True, exist_ok=True)
    for distribution in (clone, clone / "devcluster"):
        run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(to)], distribution
        )
    wheel = to / f"parley-{python_version(version)}-py3-none-any.whl"
    manifests = to / f"parley-{version}-manifests.tar.gz"
    packed(manifests, {f"parley-{version}/{name}": clone / name for name in ("crds", "deploy")})
    krew = to / f"kubectl-parley-{version}.tar.gz"
    program = clone / "deploy" / "krew" / "kubectl-parley"
    packed(krew, {"kubectl-parley": program, wheel.name: wheel, "LICENSE": clone / "LICENSE"})
    template = (clone / "deploy" / "krew" / "parley.yaml").read_text()
    (to / "parley.yaml").write_text(krew_manifest(template, version, checksum(krew), address))
    chart = clone / "deploy" / "chart" / "parley"
    packed(to / f"parley-{version}.tgz", {"parley": chart})
    sbom.write(clone, python_version(version), to / f"{wheel.stem}.cdx.json")
    if image:
        image.write(clone, version, to)
    return write_sums(to)


def packed(archive: Path, content: dict[str, Path]) -> None:
    """Writes a tar.gz of files and folders under these names."""
    with tarfile.open(archive, "w:gz") as made:
        for name, path in content.items():
            made.add(path, name)


def krew_manifest(template: str, version: str, sha256: str, address: str) -> str:
    """The krew manifest without the template's heading; `address` is where releases are published."""
    body = "".join(line for line in template.splitlines(keepends=True) if not line.startswith("#"))
    return body.replace("SHA256", sha256).replace("VERSION", version).replace("RELEASES", address)


def release(
    root: Path,
    version: str,
    day: date,
    *,
    dry_run: bool,
    address: str = PUBLISHED_AT,
    image: ReleaseImage | None = None,
) -> Iterable[str]:
    """Does it, and yields a line for each thing that was done."""
    check(root, version)
    to = root / "dist" / "release"
    if to.exists() and any(to.iterdir()):
        raise Refused(f"{to} is not empty: remove it")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "parley"
        run(["git", "clone", "--quiet", "--no-hardlinks", str(root), str(clone)], root)
        record(clone, version, day)
        yield from (f"built {file.relative_to(root)}" for file in build(clone, version, to, address, image))
        if dry_run:
            yield f"dry run: nothing was committed or tagged; remove {to.relative_to(root)} before the release"
            return
        run(["git", "pull", "--quiet", "--ff-only", "--tags", str(clone), "HEAD"], root)
        yield f"committed and tagged v{version}: push both, then sign and publish the files (docs/releasing.md)"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The exit status: 0 if it was done, 1 if it was refused."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Make a release.")
    parser.add_argument("version", help="such as 0.2.0, or 0.2.0-rc.1")
    parser.add_argument("--dry-run", action="store_true", help="build everything, commit and tag nothing here")
    parser.add_argument("--published-at", default=PUBLISHED_AT, help="where releases are published: an address")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--base", help="build the image on this one: NAME@sha256:DIGEST")
    choice.add_argument("--no-image", action="store_true", help="leave the image out")
    given = parser.parse_args(arguments)
    day = datetime.now(UTC).date()
    try:
        image = None if given.no_image else ReleaseImage.on(given.base)
        for line in release(
            root, given.version, day, dry_run=given.dry_run, address=given.published_at, image=image
        ):
            print(line)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
