"""File systems of a fixed size, each in a file: a claim that fills its own takes no room from others.

    FOLDER/disk   an ext4 file system; its blocks are allocated when it is created, so that none is missing later

The file is attached to a loop device while containers use it, and the container runtime mounts that. So nothing is
mounted on the node itself, or left mounted if this process is killed. Everything here blocks: call it in a thread.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from parley.api.wording import bytes_text
from parley_kubelet.driver import loops
from parley_kubelet.driver.attributes import disable_copy_on_write

FILE: Final = "disk"
FILE_SYSTEM: Final = "ext4"

_PROGRAMS: Final = ("fallocate", "mkfs.ext4", "debugfs")
_BYTES_PER_INODE: Final = 8192
"""Half of ext4's default: builds and packages have many small files."""


class ImageError(Exception):
    """Raised if a program failed, with its error output, or if the disk has too little room."""


def lacking() -> str:
    """What this node lacks to create and attach file systems, with the remedy; "" if nothing."""
    missing = [name for name in _PROGRAMS if not _program(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return (
            f"{' and '.join(missing)} {verb} not in PATH: run the node plugin from an image with util-linux and "
            "e2fsprogs"
        )
    return lacking_devices()


def lacking_devices() -> str:
    """Why loop devices can't be used, with the remedy; "" if they can."""
    if loops.available():
        return ""
    return "loop devices can't be used: make the plugin privileged (nodePlugin.workspaces.enforceSizes)"


def make(folder: Path, size: int, owner: tuple[int, int], mode: int) -> None:
    """Create the file in the folder, `size` bytes long, with an empty file system; `owner` (UID and GID) and
    `mode` are those of its root directory. An unfinished file is replaced. Raises ImageError or OSError."""
    file = folder / FILE
    file.unlink(missing_ok=True)
    disk = os.statvfs(folder)
    if size > (free := disk.f_bavail * disk.f_frsize):  # fallocate would take all of it before it fails
        raise ImageError(f"the disk has {bytes_text(free)} free, and the claim's size is {bytes_text(size)}")
    uid, gid = owner
    options = f"nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner={uid}:{gid}"
    try:
        with file.open("xb") as made:
            disable_copy_on_write(made.fileno())
        _run("fallocate", "--length", str(size), str(file))
        file.chmod(0o600)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-i", str(_BYTES_PER_INODE), "-E", options, str(file))
        _edit(file, ("rmdir lost+found", f"set_inode_field / mode 0{0o40000 | mode:o}"))
        with file.open("rb") as made:
            os.fsync(made.fileno())  # debugfs does not, and an existing file is never written here again
    except BaseException:
        with suppress(OSError):
            file.unlink(missing_ok=True)  # it would keep its room on the disk
        raise


class AttachedImages:
    """The loop devices of the files that containers use, by labels. This process keeps each open: a device that
    somebody detaches (`losetup -D`) while no container has it mounted would be free for another claim's file, and
    a container that is restarted would get that."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def attach(self, folder: Path, label: str) -> Path:
        """The loop device of the file in the folder; the same one until `detach`. Raises OSError."""
        device = loops.attach(folder / FILE, label)
        self._hold(label)
        return device

    def detach(self, label: str) -> None:
        """Detach the loop device, which no container uses any more. Idempotent. Raises OSError."""
        self._let_go(label)
        loops.detach(label)

    def follow(self, labels: Set[str]) -> None:
        """Keep the devices of these labels open, also those that another process attached, and no others. Raises
        OSError."""
        for label in self._held.keys() - labels:
            self._let_go(label)
        for label in labels - self._held.keys():
            self._hold(label)

    def _hold(self, label: str) -> None:
        device = None if label in self._held else loops.hold(label)
        if device is not None and self._held.setdefault(label, device) != device:
            os.close(device)  # another thread has it

    def _let_go(self, label: str) -> None:
        device = self._held.pop(label, None)
        if device is not None:
            os.close(device)


def _edit(file: Path, commands: Sequence[str]) -> None:
    """Change the unmounted file system by commands of debugfs. Raises ImageError."""
    for command in commands:
        said = _run("debugfs", "-w", "-R", command, str(file))
        if len(said.splitlines()) > 1:  # the first line is its version; its exit status is always 0
            raise ImageError(f"debugfs: {said.splitlines()[-1]}")


def _program(name: str) -> str:
    """The program's path, "" if there is none. The PATH of services often lacks the directories of system
    programs."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def _run(name: str, *arguments: str) -> str:
    """Runs a program and returns its error output. Raises ImageError or OSError."""
    done = subprocess.run(
        [_program(name) or name, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    text = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise ImageError(text.splitlines()[-1] if text else f"{name} failed with code {done.returncode}")
    return text
