"""Directories whose content is somebody else's: made, moved and removed without following a link out of them.

Names are looked up in an open directory, never by a path that others could change, and no link is followed. A tree
is removed level by level: each directory in it is first moved to the top. So neither its depth nor the number of
its files costs memory or open files, and what a link points to is not touched.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Make the directory, with that mode and owner (UID and GID). Raises OSError."""
    os.mkdir(name, mode=0o700, dir_fd=parent)
    with entered(parent, name) as made:
        os.fchown(made, *owner)
        os.fchmod(made, mode)


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
    """Remove the directory with everything in it; `parent` is for nothing else but what is to be removed. Raises
    OSError; then the rest is below `parent`, and can be removed by a call for each name that is there."""
    pending = [name]
    while pending:
        current = pending.pop()
        try:
            with entered(parent, current) as directory:
                pending += _emptied(directory, parent)
            os.rmdir(current, dir_fd=parent)
        except FileNotFoundError:
            continue


def _emptied(directory: int, parent: int) -> list[str]:
    """Remove the files; the directories are moved to the parent, and returned by their new names."""
    moved: list[str] = []
    for _ in range(_PASSES):
        found = False
        with os.scandir(directory) as entries:
            for entry in entries:
                found = True
                if entry.is_dir(follow_symlinks=False):
                    moved.append(token_hex(16))
                    os.rename(entry.name, moved[-1], src_dir_fd=directory, dst_dir_fd=parent)
                else:
                    os.unlink(entry.name, dir_fd=directory)
        if not found:
            break
    return moved
