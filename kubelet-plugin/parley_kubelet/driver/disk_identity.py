"""Which disk the workspaces of a node are on.

    ROOT/identity   drawn when the disk is used for the first time

So it is seen that a node was installed anew, got another disk, or has not mounted the one that it had: what pods
left is not there then. Blocks.
"""

import os
import re
from pathlib import Path
from secrets import token_hex
from typing import Final

from parley_kubelet.driver import trees

_FILE: Final = "identity"
_DRAWN: Final = re.compile("[0-9a-f]{16}")


def identity(root: Path) -> str:
    """Of the disk that `root` is on. Raises OSError."""
    return _read(root / _FILE) or _drawn(root)


def _read(path: Path) -> str:
    """What was drawn, "" if nothing was, or if the file is damaged."""
    try:
        found = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return found if _DRAWN.fullmatch(found) else ""


def _drawn(root: Path) -> str:
    """A new one, on the disk whole or not at all."""
    new, drawn = root / f".{_FILE}", token_hex(8)
    with trees.opened(root) as folder:
        with new.open("w") as file:
            file.write(drawn)
            file.flush()
            os.fsync(file.fileno())
        new.replace(root / _FILE)
        os.fsync(folder)
    return drawn
