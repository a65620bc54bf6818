"""Creates, moves and removes directories whose content is under users' control, without following links out of
them.

Names are looked up in an open directory, never by a path that users could change, and no link is followed. A tree
is removed level by level: each directory in it is first moved to the tree's top. So neither its depth nor the
number of its files costs memory or open files, targets of links are not touched, and after a crash the rest is
still below the tree's name. A directory that can't be moved there, as out of a subvolume of btrfs, is emptied in
its place, and directories in it are moved beside it. If directories can't be moved at all, as in an encrypted
directory without its key, deep ones are removed from the bottom up.

The tree's owner may fight its removal by a descriptor that is still open. So a removal ends after a time limit,
for a caller who tries again; a file that can't be removed does not keep others; and mounts in the tree are left
alone.
"""

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from parley_kubelet.driver.attributes import make_writable, stop_project_inheritance

_NOT_MOVABLE: Final = frozenset({errno.EXDEV, errno.EROFS, errno.ENOTEMPTY, errno.ENOKEY})
"""Errors for a directory that can't be moved: it is in another subvolume, is a read-only one, stands for one in a
snapshot, or is in an encrypted directory without its key (fscrypt), whose content can be removed but not moved."""

_MOST_TOPS: Final = 16
"""The most directories that others are moved to at a time. In btrfs two are enough, however subvolumes are nested:
each can be moved itself. Deeper directories are removed with one open directory."""

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Opens the directory of an administrator's path, created if it does not exist; yields its descriptor. Raises
    OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def restrict(parent: Path, names: Iterable[str]) -> None:
    """Let only the owner through these directories of `parent`, if they exist: users' programs below them may be
    setuid, and others of the machine must not run them. Earlier versions let others through."""
    for path in (parent / name for name in names):
        with suppress(OSError):  # also if the disk is read-only
            if path.stat().st_mode & 0o077:
                path.chmod(0o700)


@contextmanager
def entered(parent: int, name: str) -> Iterator[int]:
    """Opens the directory `name` in the open directory `parent`; yields its descriptor. Raises OSError if it does
    not exist or is a link."""
    directory = os.open(name, _FLAGS, dir_fd=parent)
    try:
        yield directory
    finally:
        os.close(directory)


def make(parent: int, name: str, mode: int, owner: tuple[int, int]) -> None:
    """Create the directory with that mode and owner (UID and GID), or set them for an existing one. Raises
    OSError."""
    with suppress(FileExistsError):
        os.mkdir(name, mode=0o700, dir_fd=parent)
    with entered(parent, name) as made:
        os.fchown(made, -1, os.getegid())  # fchmod clears setgid if the group is foreign (chmod(2), CAP_FSETID)
        os.fchmod(made, mode)
        os.fchown(made, *owner)


def is_directory(parent: int, name: str) -> bool:
    """Whether `parent` has a directory of that name. Raises OSError."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def move(source: int, name: str, target: int, new_name: str) -> bool:
    """Move a file or directory to another directory of the same file system. Returns whether it existed."""
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    return True


def move_foreign(source: int, name: str, target: int, new_name: str) -> bool:
    """As `move`, for users' directories. An owner can give a directory to another quota project than the target's;
    it can be moved there only once the target no longer passes its own project on."""
    try:
        return move(source, name, target, new_name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    stop_project_inheritance(target)
    return move(source, name, target, new_name)


def remove(parent: int, name: str, seconds: float = math.inf) -> None:
    """Remove the directory with its content; others may do so at the same time. Raises OSError if something can't
    be removed, TimeoutError if it isn't done after `seconds`; the rest is still below that name."""
    with suppress(FileNotFoundError):
        with entered(parent, name) as top:
            _Removal(top, seconds).run()
        os.rmdir(name, dir_fd=parent)


class _NotEmpty(Exception):
    """Raised if a directory has to be emptied before it is removed, with the system's error."""

    def __init__(self, name: str, said: OSError) -> None:
        self.name = name
        self.said = said


class _Removal:
    """Empties a directory on which `top` is open."""

    def __init__(self, top: int, seconds: float) -> None:
        self._tops = [top]
        """The directories that others are moved to: to the first where that succeeds."""
        self._mount = mount_of(top)
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._changes = 0
        self._failure: OSError | None = None
        """The first failure since the top was last read from its beginning."""
        self._refusal: OSError | None = None
        """The error of removing the directory that the walk entered last."""

    def run(self) -> None:
        """Read the top until a pass removes nothing: removing entries makes a reader skip others."""
        (top,) = self._tops
        stop_project_inheritance(top)
        while self._remove_entries(top, self._remove_directory):
            self._failure = None
        if self._failure is not None:
            raise self._failure

    def _remove_entries(self, directory: int, clear_away: Callable[[int, str], None]) -> bool:
        """Remove the directory's files, and call `clear_away` for its directories. Returns whether any was
        removed."""
        before = self._changes
        with os.scandir(directory) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    raise TimeoutError(errno.ETIMEDOUT, f"still something in it after {self._seconds:g} s")
                self._remove_entry(entry, directory, clear_away)
        return self._changes > before

    def _remove_entry(
        self, entry: os.DirEntry[str], directory: int, clear_away: Callable[[int, str], None]
    ) -> None:
        try:
            if entry.is_dir(follow_symlinks=False):
                clear_away(directory, entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory)
        except FileNotFoundError:
            pass  # somebody else did it
        except TimeoutError:
            raise
        except OSError as error:
            self._failure = self._failure or error
            return
        self._changes += 1

    def _remove_directory(self, top: int, name: str) -> None:
        """Remove a directory that is in a top; directories in it are moved to a top."""
        with entered(top, name) as directory:
            self._make_removable(directory, name)
            while self._remove_entries(directory, self._move_up):
                pass
        os.rmdir(name, dir_fd=top)

    def _move_up(self, directory: int, name: str) -> None:
        for top in self._tops:
            try:
                os.rename(name, token_hex(16), src_dir_fd=directory, dst_dir_fd=top)  # fails for a mount point
            except OSError as error:
                if error.errno not in _NOT_MOVABLE:
                    raise
            else:
                return
        self._remove_in_place(directory, name)

    def _remove_in_place(self, directory: int, name: str) -> None:
        if len(self._tops) == _MOST_TOPS:
            self._remove_from_the_bottom(directory, name)
            return
        self._tops.append(directory)
        try:
            self._remove_directory(directory, name)
        finally:
            self._tops.pop()

    def _remove_from_the_bottom(self, directory: int, name: str) -> None:
        """Walk down to empty directories, and up again, with one open directory. If users move that meanwhile, it
        stays within the tree: so the way up ends at a directory that was open before, at the latest at the first
        top."""
        above = {_identity(one) for one in (*self._tops, directory)}
        place = os.open(name, _FLAGS, dir_fd=directory)
        try:
            while _identity(place) not in above:
                self._make_removable(place, name)
                following = self._next_in_walk(place)
                os.close(place)
                place = following
        finally:
            os.close(place)
        os.rmdir(name, dir_fd=directory)

    def _next_in_walk(self, place: int) -> int:
        """Opens the next directory of the walk: one in `place` that is not empty, or the parent if none is
        left."""
        try:
            changed = self._remove_entries(place, _remove_empty)
        except _NotEmpty as found:
            self._refusal = found.said
            return os.open(found.name, _FLAGS, dir_fd=place)
        if not changed and (why := self._failure or self._refusal) is not None:
            raise why
        return os.open("..", _FLAGS, dir_fd=place)

    def _make_removable(self, directory: int, name: str) -> None:
        """Make the directory's content removable. Raises OSError if a file system is mounted there."""
        if mount_of(directory) != self._mount:
            raise OSError(errno.EBUSY, "something is mounted there: unmount it", name)
        make_writable(directory)


def _remove_empty(directory: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _NotEmpty(name, error) from None  # or a read-only subvolume


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def mount_of(directory: int) -> bytes:
    """Identifies the mount of an open directory; two mounts of one file system differ (proc(5))."""
    with open(f"/proc/self/fdinfo/{directory}", "rb") as info:  # noqa: PTH123 - no path of the disk
        return next(line for line in info if line.startswith(b"mnt_id:"))
