"""The Debian packages that real nodes and tests in a browser need, and their installation where that is allowed.

containerd starts containers with runc, connects pods with the CNI plugins and `ip`, and the images that need
no registry are made from busybox-static. Debian's runc has seccomp built in; one built from Go without
libseccomp refuses the default profile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from parley_devcluster import commands
from parley_devcluster.gobuild import Report, say

CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")

PACKAGES = {
    "runc": Path("/usr/sbin/runc"),
    "containernetworking-plugins": CNI_PLUGINS / "bridge",
    "busybox-static": BUSYBOX,
    "iproute2": Path("/sbin/ip"),
}
"""The packages, each with a file that exists once it is installed."""

BROWSER = {
    "chromium": Path("/usr/bin/chromium"),
    "fonts-dejavu-core": Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
}
"""The packages that tests in a browser need."""

FILE_SYSTEMS = {"btrfs-progs": Path("/sbin/mkfs.btrfs"), "xfsprogs": Path("/sbin/mkfs.xfs")}
"""The packages with which tests of workspaces create other file systems."""

NODES = "real nodes need"
TESTS = "tests in a browser need"
DISKS = "tests on other file systems need"

_LIMIT = 300.0  # seconds for one apt-get


class PackagesMissing(RuntimeError):
    """Required packages are missing and could not be installed."""


def missing(exists: Callable[[Path], bool] = Path.exists, packages: Mapping[str, Path] = PACKAGES) -> list[str]:
    """The names of the packages that are not installed."""
    return [package for package, file in packages.items() if not exists(file)]


def install_missing(report: Report = say, packages: Mapping[str, Path] = PACKAGES, who_needs: str = NODES) -> None:
    """Install missing packages if this is root on Debian; otherwise raises `PackagesMissing` with the command to
    run."""
    absent = missing(packages=packages)
    if not absent:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PackagesMissing(absence(absent, who_needs=who_needs))
    report(f"installing {', '.join(absent)}")
    _apt(["update"], absent, who_needs)
    _apt(["install", "-y", "--no-install-recommends", *absent], absent, who_needs)


def absence(packages: list[str], said: str = "", who_needs: str = NODES) -> str:
    """The message that names the packages, the command to run and, if there was an attempt, what apt-get said."""
    message = (
        f"{who_needs} the packages {', '.join(packages)}, which are not installed: run"
        f" `apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}` as root"
    )
    return f"{message}\n{said}" if said else message


def _apt(arguments: list[str], packages: list[str], who_needs: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands.run(
        ["apt-get", "-q", *arguments],
        lambda said: PackagesMissing(absence(packages, said, who_needs)),
        limit=_LIMIT,
        environment=environment,
    )
