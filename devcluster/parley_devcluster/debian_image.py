"""Base images that need no registry: Debian's packages in a container engine's storage, made by mmdebstrap.

They stand in for what a registry has: `deploy/Dockerfile` is tested on one with Debian's own Python, and kind's
nodes are made from one. They trust the authorities that this machine trusts, so that a build sees the network as
its host does.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import commands
from parley_devcluster.engine import Engine, EngineError
from parley_devcluster.gobuild import Report, say

SUITE = "bookworm"
PACKAGES: Mapping[str, Path] = {
    "podman": Path("/usr/bin/podman"),
    "runc": Path("/usr/sbin/runc"),
    "netavark": Path("/usr/lib/podman/netavark"),
    "aardvark-dns": Path("/usr/lib/podman/aardvark-dns"),
    "mmdebstrap": Path("/usr/bin/mmdebstrap"),
    "skopeo": Path("/usr/bin/skopeo"),
}
"""What this needs on Debian, each with a file that is there once it is installed."""
WHO = "container images need"

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_LIMIT = 900.0


@dataclass(frozen=True)
class BaseImage:
    """A minimal Debian with some additional packages."""

    purpose: str
    packages: tuple[str, ...]

    @property
    def image(self) -> str:
        """The image's name, which differs for each list of packages."""
        digest = hashlib.sha256(" ".join([SUITE, *self.packages]).encode()).hexdigest()
        return f"parley.dev/{self.purpose}:{digest[:12]}"


PYTHON = BaseImage("python", ("ca-certificates", "python3", "python3-venv"))
"""In place of `python:3.11-slim`."""


def ensure(engine: Engine, base: BaseImage, report: Report = say) -> str:
    """The name of the base's image, which is made if the engine has none: takes a minute.

    Raises `EngineError` where mmdebstrap is missing or fails.
    """
    if not engine.has(base.image):
        report(f"making the image {base.image} of Debian's packages")
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "base.tar"
            _run(command(base, archive, _AUTHORITIES))
            engine.run("import", str(archive), base.image)
    return base.image


def command(base: BaseImage, archive: Path, authorities: Path) -> list[str]:
    """The command line that makes the base's file system."""
    hook = f"--customize-hook=copy-in {authorities} {authorities.parent}"
    trusting = [hook] if authorities.is_file() and "ca-certificates" in base.packages else []
    include = f"--include={','.join(base.packages)}"
    return ["mmdebstrap", "--quiet", "--variant=minbase", include, *trusting, SUITE, str(archive)]


def _run(arguments: Sequence[str]) -> None:
    if shutil.which(arguments[0]) is None:
        raise EngineError(f"{arguments[0]} is not on PATH: install the package {arguments[0]}")
    commands.run(arguments, EngineError, limit=_LIMIT)
