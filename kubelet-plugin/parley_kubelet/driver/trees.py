"""Directories whose content is somebody else's: made, moved and removed without following a link out of them.

Names are looked up in an open directory, never by a path that others could change, and no link is followed. A tree
is removed level by level: each directory in it is first moved to the tree's own top. So neither its depth nor the
number of its files costs memory or open files, what a link points to is not touched, and what is left after a
crash is still below the tree's name.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

_PASSES: Final = 100
"""So often a directory is read again to remove what a removal made its reader skip."""

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The directory of an administrator's path, made if it is not there, as a descriptor. Raises OSError."""
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def entered(parent: int, name: str) -> Iterator[int]:
    """The directory of that name in an open one. Raises OSError if there is none, or if it is a link."""
    directory = os.open(name, _FLAGS, dir_fd=parent)
    try:
        yield directory
    finally:
        os.close(directory)


def make(parent: int, name: str, mode: int, owner: tuple[int, int]) -> None:
    """Make the directory, with that mode and owner (UID and GID), or give them to one that is there. Raises
    OSError."""
    with suppress(FileExistsError):
        os.mkdir(name, mode=0o700, dir_fd=parent)
    with entered(parent, name) as made:
        os.fchmod(made, mode)  # afterwards, a foreign group would cost the setgid bit (chmod(2), CAP_FSETID)
        os.fchown(made, *owner)


def is_directory(parent: int, name: str) -> bool:
    """Whether there is one of that name. Raises OSError."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def move(source: int, name: str, target: int, new_name: str) -> bool:
    """Move what has that name to another directory of the same file system. Returns whether there was anything."""
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    return True


def remove(parent: int, name: str) -> None:
    """Remove the directory with everything in it; others may do so at the same time. Raises OSError; then the rest
    is still below that name."""
    with suppress(FileNotFoundError):
        with entered(parent, name) as top:
            while _reduced(top):
                pass
        os.rmdir(name, dir_fd=parent)


def _reduced(top: int) -> bool:
    """Remove what is in the directory now, and move what is in its subdirectories up to it. Returns whether there
    was anything."""
    found = False
    with os.scandir(top) as entries:
        for entry in entries:
            found = True
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    with entered(top, entry.name) as directory:
                        _empty(directory, top)
                    os.rmdir(entry.name, dir_fd=top)
                else:
                    os.unlink(entry.name, dir_fd=top)
    return found


def _empty(directory: int, top: int) -> None:
    """Remove the files; the directories are moved to the top."""
    for _ in range(_PASSES):
        found = False
        with os.scandir(directory) as entries:
            for entry in entries:
                found = True
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        os.rename(entry.name, token_hex(16), src_dir_fd=directory, dst_dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=directory)
        if not found:
            return
