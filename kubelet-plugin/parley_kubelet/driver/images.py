"""File systems of a fixed size, each in a file: whoever fills one takes nothing from others.

    FOLDER/disk   an ext4 file system; its blocks are allocated when it is made, so that none is lacking later

The file becomes a loop device of the node while containers use it, and their runtime mounts that. So nothing is
mounted on the node itself, and nothing is left mounted there, whenever this process is killed. Everything here
blocks: call it in a thread.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from parley.api.wording import bytes_text
from parley_kubelet.driver import loops
from parley_kubelet.driver.attributes import write_in_place

FILE: Final = "disk"
FILE_SYSTEM: Final = "ext4"

_PROGRAMS: Final = ("fallocate", "mkfs.ext4", "debugfs")
_BYTES_PER_INODE: Final = 8192
"""Half of ext4's own figure: builds and packages are many small files."""


class NotMade(Exception):
    """Raised when a program failed; the message is what it said."""


def lacking() -> str:
    """What this node lacks for it, "" if nothing."""
    missing = [name for name in _PROGRAMS if not _program(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return (
            f"{' and '.join(missing)} {verb} not in PATH: run the node plugin from an image with util-linux and "
            "e2fsprogs"
        )
    return lacking_devices()


def lacking_devices() -> str:
    """The same of its devices."""
    if loops.available():
        return ""
    return "loop devices can't be used: make the plugin privileged (nodePlugin.workspaces.enforceSizes)"


def make(folder: Path, size: int, owner: tuple[int, int], mode: int) -> None:
    """Make the file in the folder, of so many bytes, with an empty file system; `owner` (UID and GID) and `mode`
    are those of its root. One that was being made before is begun anew. Raises NotMade or OSError."""
    file = folder / FILE
    file.unlink(missing_ok=True)
    disk = os.statvfs(folder)
    if size > (free := disk.f_bavail * disk.f_frsize):  # fallocate would take all of it before it fails
        raise NotMade(f"the disk has {bytes_text(free)} free, and the claim's size is {bytes_text(size)}")
    uid, gid = owner
    options = f"nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner={uid}:{gid}"
    try:
        with file.open("xb") as made:
            write_in_place(made.fileno())
        _run("fallocate", "--length", str(size), str(file))
        file.chmod(0o600)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-i", str(_BYTES_PER_INODE), "-E", options, str(file))
        _edit(file, ("rmdir lost+found", f"set_inode_field / mode 0{0o40000 | mode:o}"))
        with file.open("rb") as made:
            os.fsync(made.fileno())  # debugfs has not, and one that is there is never changed again
    except BaseException:
        with suppress(OSError):
            file.unlink(missing_ok=True)  # else it takes its room from others
        raise


def attach(folder: Path, label: str) -> Path:
    """The device of the file in the folder; the same one until `detach`. Raises OSError."""
    return loops.attach(folder / FILE, label)


def detach(label: str) -> None:
    """No container uses it any more. Idempotent. Raises OSError."""
    loops.detach(label)


def _edit(file: Path, commands: Sequence[str]) -> None:
    """Change the file system while it is mounted nowhere. Raises NotMade."""
    for command in commands:
        said = _run("debugfs", "-w", "-R", command, str(file))
        if len(said.splitlines()) > 1:  # the first line is its version; it never fails
            raise NotMade(f"debugfs: {said.splitlines()[-1]}")


def _program(name: str) -> str:
    """Its path, "" if there is none. Services often have no PATH with the system's programs."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def _run(name: str, *arguments: str) -> str:
    """What the program says on its error output. Raises NotMade or OSError."""
    done = subprocess.run(
        [_program(name) or name, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    text = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise NotMade(text.splitlines()[-1] if text else f"{name} failed with code {done.returncode}")
    return text
