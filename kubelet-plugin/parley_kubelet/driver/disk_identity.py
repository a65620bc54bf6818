"""The identity of the disk that a node's workspaces are on.

    ROOT/identity   random, created when the disk is used for the first time

It shows that a node was reinstalled, got another disk, or has not mounted its disk: the files of its workspaces
are missing then. Blocks.
"""

import fcntl
import os
import re
from pathlib import Path
from secrets import token_hex
from typing import Final

from parley_kubelet.driver import trees

_FILE: Final = "identity"
_IDENTITY: Final = re.compile("[0-9a-f]{16}")


def identity(root: Path) -> str:
    """The identity of the disk that `root` is on, created if it has none. Raises OSError."""
    return _read(root / _FILE) or _create(root)


def _read(path: Path) -> str:
    """The recorded identity; "" if there is none, or if the file is damaged."""
    try:
        found = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return found if _IDENTITY.fullmatch(found) else ""


def _create(root: Path) -> str:
    """Records a new identity, whole or not at all, and returns it; or the one that another thread or process has
    just recorded."""
    new = root / f".{_FILE}"
    with trees.opened(root) as folder, new.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if found := _read(root / _FILE):
            return found
        created = token_hex(8)
        file.truncate(0)
        file.write(created)
        file.flush()
        os.fsync(file.fileno())
        new.replace(root / _FILE)
        os.fsync(folder)
    return created
