"""Directories whose content is somebody else's: made, moved and removed without following a link out of them.

Names are looked up in an open directory, never by a path that others could change, and no link is followed. A tree
is removed level by level: each directory in it is first moved to the tree's own top. So neither its depth nor the
number of its files costs memory or open files, what a link points to is not touched, and what is left after a
crash is still below the tree's name. A directory that can't be moved there, as out of a subvolume of btrfs, is
emptied where it is, and those in it are moved beside it. Where they can't be moved at all, as in a directory that
is encrypted and whose key is gone, those that are deep are removed from the bottom up.

Who owned the tree may fight its removal, by a descriptor that is still open. So that ends after a while, for a
caller who tries again; what can't be removed keeps nothing else; and what is mounted in the tree is left alone.
"""

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from parley_kubelet.driver.attributes import make_writable, take_in_all

_APART: Final = frozenset({errno.EXDEV, errno.EROFS, errno.ENOTEMPTY, errno.ENOKEY})
"""A directory that can't be moved is in another subvolume, is a read-only one, stands for one in a snapshot, or is
in one that is encrypted: without its key nothing is moved there, but what is in it can be removed (fscrypt)."""

_MOST_TOPS: Final = 16
"""So many directories have others moved to them at a time. In btrfs two are enough, however subvolumes are nested:
each can be moved itself. What is deeper is removed with one open directory."""

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
        os.fchown(made, -1, os.getegid())  # a foreign group would cost the setgid bit (chmod(2), CAP_FSETID)
        os.fchmod(made, mode)
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


def move_away(source: int, name: str, target: int, new_name: str) -> bool:
    """The same of what somebody had: who owns a directory can give it to another quota project than the target's,
    where nothing of other projects goes as long as the target gives its own to what is made in it."""
    try:
        return move(source, name, target, new_name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    take_in_all(target)
    return move(source, name, target, new_name)


def remove(parent: int, name: str, seconds: float = math.inf) -> None:
    """Remove the directory with everything in it; others may do so at the same time. Raises OSError if something
    can't be removed, TimeoutError if it isn't done after so many seconds; the rest is still below that name."""
    with suppress(FileNotFoundError):
        with entered(parent, name) as top:
            _Removal(top, seconds).run()
        os.rmdir(name, dir_fd=parent)


class _NotEmpty(Exception):
    """Raised when a directory has to be emptied first, with what the system said of it."""

    def __init__(self, name: str, said: OSError) -> None:
        self.name = name
        self.said = said


class _Removal:
    """Empties a directory on which `top` is open."""

    def __init__(self, top: int, seconds: float) -> None:
        self._tops = [top]
        """Where directories are moved to: to the first that takes them."""
        self._mount = mount_of(top)
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._changes = 0
        self._failure: OSError | None = None
        """The first one since the top was last read from its beginning."""
        self._refusal: OSError | None = None
        """Why the directory last entered on a walk was not removed before."""

    def run(self) -> None:
        """Read the top until a reading finds nothing to remove: a removal makes a reader skip entries."""
        (top,) = self._tops
        take_in_all(top)
        while self._changed_by_reading(top, self._remove_directory):
            self._failure = None
        if self._failure is not None:
            raise self._failure

    def _changed_by_reading(self, directory: int, clear_away: Callable[[int, str], None]) -> bool:
        """Remove the files, and clear the directories away. Returns whether anything was done."""
        before = self._changes
        with os.scandir(directory) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    raise TimeoutError(errno.ETIMEDOUT, f"still something in it after {self._seconds:g} s")
                self._take(entry, directory, clear_away)
        return self._changes > before

    def _take(self, entry: os.DirEntry[str], directory: int, clear_away: Callable[[int, str], None]) -> None:
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
        """One that is in a top; those in it go to a top."""
        with entered(top, name) as directory:
            self._open_up(directory, name)
            while self._changed_by_reading(directory, self._move_up):
                pass
        os.rmdir(name, dir_fd=top)

    def _move_up(self, directory: int, name: str) -> None:
        for top in self._tops:
            try:
                os.rename(name, token_hex(16), src_dir_fd=directory, dst_dir_fd=top)  # fails for a mount point
            except OSError as error:
                if error.errno not in _APART:
                    raise
            else:
                return
        self._remove_in_its_place(directory, name)

    def _remove_in_its_place(self, directory: int, name: str) -> None:
        if len(self._tops) == _MOST_TOPS:
            self._remove_from_the_bottom(directory, name)
            return
        self._tops.append(directory)
        try:
            self._remove_directory(directory, name)
        finally:
            self._tops.pop()

    def _remove_from_the_bottom(self, directory: int, name: str) -> None:
        """Walk down to what is empty, and up again, with one open directory. Who moves that meanwhile moves it
        within the tree: so the way up ends at a directory that was open before, at the latest at the first top."""
        above = {_identity(one) for one in (*self._tops, directory)}
        place = os.open(name, _FLAGS, dir_fd=directory)
        try:
            while _identity(place) not in above:
                self._open_up(place, name)
                following = self._next_in_walk(place)
                os.close(place)
                place = following
        finally:
            os.close(place)
        os.rmdir(name, dir_fd=directory)

    def _next_in_walk(self, place: int) -> int:
        """A directory in this one that is not empty; where nothing is left in this one, the one that it is in."""
        try:
            changed = self._changed_by_reading(place, _remove_empty)
        except _NotEmpty as found:
            self._refusal = found.said
            return os.open(found.name, _FLAGS, dir_fd=place)
        if not changed and (why := self._failure or self._refusal) is not None:
            raise why
        return os.open("..", _FLAGS, dir_fd=place)

    def _open_up(self, directory: int, name: str) -> None:
        """So that what is in it can be removed."""
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
    """Identifies the mount that an open directory is in; one of the same file system differs (proc(5))."""
    with open(f"/proc/self/fdinfo/{directory}", "rb") as info:  # noqa: PTH123 - no path of the disk
        return next(line for line in info if line.startswith(b"mnt_id:"))
