"""A folder whose files are whole or absent, also after a crash or a power cut.

Decides how a file reaches the disk; what is in it is its owner's affair. A new version is written beside the
old one, flushed, and renamed over it; the folder is flushed too, because the name is in there. What can be made
again after a power cut need not be flushed. Everything here blocks: call it in a thread if the disk may be slow.

A folder may keep a spare file, whose blocks are used when the disk has none left: to give up what fills a disk,
that has to be recorded first. Its files have as many blocks themselves. On a full disk the spare file is written
to, and changes places with the file that it replaces: so there is as much for the next write, whoever takes each
block that comes free.
"""

import asyncio
import ctypes
import errno
import fcntl
import hashlib
import os
import struct
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from parley_kubelet.driver import trees
from parley_kubelet.driver.attributes import write_in_place

_TEMPORARY = ".parley-new-"
_LOCK = "lock"
_NAMES_LOCK = "lock-names"
_SPARE = "spare"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PADDING: Final = b" "
"""What a spare file has behind its data: JSON may end with any number of them."""

_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2)."""

_BLOCK: Final = 512
"""Bytes of what stat(2) counts."""

_EXCHANGE: Final = 2
"""RENAME_EXCHANGE of renameat2(2)."""

_HERE: Final = -100
"""AT_FDCWD."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
SPARE: Final = 1024 * 1024
"""Bytes of a spare file for a checkpoint: some hundred claims, and it grows with their number."""

_RETRY = 0.02
"""Seconds between two attempts at the lock of a name; nobody else wants it but during a rolling update."""


class Disk:
    """The changes that a folder requests from the system, one each: between any two the process or the machine may
    die. All raise OSError."""

    def make(self, folder: Path, mode: int) -> None:
        """Make a folder in one that is there; it is no error if it is there, too."""
        folder.mkdir(mode=mode, exist_ok=True)

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        """A new file under a temporary name."""
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
        except BaseException:
            Path(temporary).unlink()
            raise
        return Path(temporary)

    def allocate(self, path: Path, size: int) -> None:
        """Make the file, if it isn't there, and give it so many bytes of the disk, whatever is in them."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def reserve(self, path: Path, size: int) -> None:
        """Give a file so many bytes of the disk, beyond what is in it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _LIBC.fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
                raise OSError(number := ctypes.get_errno(), os.strerror(number), str(path))
        finally:
            os.close(descriptor)

    def overwrite(self, path: Path, data: bytes, mode: int) -> None:
        """Replace the content of a file that is there, in the blocks that it has: it becomes no shorter."""
        with path.open("r+b") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data.ljust(os.fstat(file.fileno()).st_size, _PADDING))

    def flush(self, path: Path) -> None:
        """Bring a file's content, or the names in a folder, to where no power cut takes them."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name, in place of what had that name."""
        path.rename(target)

    def exchange(self, path: Path, target: Path) -> None:
        """Two files that are there get each other's name; where the file system can't do that, as `rename`."""
        if _LIBC.renameat2(_HERE, os.fsencode(path), _HERE, os.fsencode(target), _EXCHANGE):
            self.rename(path, target)

    def remove(self, path: Path) -> None:
        """Remove a file; it is no error if it is gone."""
        path.unlink(missing_ok=True)


DISK: Final = Disk()


class Folder:
    """A folder of this plugin, made if it is missing. A spare file has `spare` bytes, none if that is 0, and more
    for a file of more than half of that."""

    def __init__(self, path: Path, mode: int = 0o750, disk: Disk = DISK, spare: int = 0) -> None:
        self.path = path
        self._disk = disk
        self._spare = spare
        self._names = -1
        """Open while there are `callers` who lock a name, or wait for it."""
        self._callers = 0
        self._locked: set[str] = set()
        self._make(path, mode)
        if spare:
            with trees.opened(path) as folder:
                write_in_place(folder)
        self._keep_spare()

    def read(self, name: str) -> bytes | None:
        """The file's content, None if there is no such file. Raises OSError."""
        try:
            found = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        return found.rstrip(_PADDING) if self._spare else found

    def write(self, name: str, data: bytes, mode: int = 0o600, *, flush: bool = True) -> None:
        """Replace the file; when this returns, it is on the disk, unless `flush` is false: then it is whole or
        absent for all who look, but not after a power cut. Raises OSError, and the old file stands, or the new
        one if only the last flush failed."""
        try:
            with self._in_use(fcntl.LOCK_SH):
                self._write_new(name, data, mode, flush=flush)
        except OSError as error:
            if error.errno not in _FULL or not self._has_spare(len(data)):
                raise
            with self._in_use(fcntl.LOCK_EX):
                self._write_spare(name, data, mode)
        if flush:
            self._disk.flush(self.path)
        self._keep_spare(len(data))

    def _write_new(self, name: str, data: bytes, mode: int, *, flush: bool) -> None:
        temporary = self._disk.create(self.path, data, mode)
        try:
            if self._spare:
                with suppress(OSError):
                    self._disk.reserve(temporary, self._room(len(data)))
            if flush:
                self._disk.flush(temporary)
            self._disk.rename(temporary, self.path / name)
        except BaseException:
            self._disk.remove(temporary)
            raise

    def _write_spare(self, name: str, data: bytes, mode: int) -> None:
        spare, file = self.path / _SPARE, self.path / name
        self._disk.flush(self.path)  # by the names on the disk, the spare file may be the other one still
        self._disk.overwrite(spare, data, mode)
        self._disk.flush(spare)
        if file.exists():
            self._disk.exchange(spare, file)
        else:
            self._disk.rename(spare, file)

    def _has_spare(self, size: int) -> bool:
        """Whether there is a spare file with that many bytes of the disk, if one is wanted."""
        spare = self.path / _SPARE
        return bool(self._spare) and spare.exists() and spare.stat().st_blocks * _BLOCK >= size

    def _keep_spare(self, size: int = 0) -> None:
        """Make the spare file, if there is none, or a larger one for a file that became so large; what a full disk
        refuses, the next write tries again."""
        if self._spare and not self._has_spare(room := self._room(size)):
            with suppress(OSError):
                self._disk.allocate(self.path / _SPARE, room)

    def _room(self, size: int) -> int:
        """Bytes of a spare file that takes the next version, too, of a file with so many."""
        half = self._spare // 2
        return max(self._spare, half * (2 + size // half))

    def remove(self, name: str) -> None:
        """Remove the file; it is no error if it is gone. Not flushed. Raises OSError."""
        self._disk.remove(self.path / name)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The files whose names start like this, sorted."""
        return tuple(sorted(path.name for path in self.path.iterdir() if path.name.startswith(prefix)))

    def sweep(self) -> None:
        """Remove what a crash in the middle of a write left behind. Waits for the writes of other processes."""
        with self._in_use(fcntl.LOCK_EX):
            for name in self.names(_TEMPORARY):
                self._disk.remove(self.path / name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of this folder: during a rolling update two plugins share it. Waits."""
        descriptor = self._open(_LOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @asynccontextmanager
    async def locked_name(self, name: str) -> AsyncIterator[None]:
        """Keep others of this and other processes from doing something for `name` at the same time. Waits.

        A lock of the open file description on one byte of a file: a file per name could not be removed safely. One
        description for all names: hundreds may be locked at a time.
        """
        if not self._callers:
            self._names = self._open(_NAMES_LOCK)
        self._callers += 1
        try:
            while name in self._locked or not _taken(self._names, name):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_RETRY)
            self._locked.add(name)
            try:
                yield
            finally:
                self._locked.remove(name)
                _change(self._names, name, fcntl.F_UNLCK)
        finally:
            self._callers -= 1
            if not self._callers:
                os.close(self._names)

    def is_name_locked(self, name: str) -> bool:
        """Whether this process or another does something for `name` now."""
        descriptor = self._open(_NAMES_LOCK)
        try:
            return not _taken(descriptor, name)
        finally:
            os.close(descriptor)

    @contextmanager
    def free_names_locked(self, names: Iterable[str]) -> Iterator[frozenset[str]]:
        """Those of the names for which nobody does something now; nobody can until the end of the block."""
        descriptor = self._open(_NAMES_LOCK)
        try:
            yield frozenset(name for name in names if _taken(descriptor, name))
        finally:
            os.close(descriptor)

    @contextmanager
    def _in_use(self, how: int) -> Iterator[None]:
        """A lock of the folder itself, by which its unfinished files are distinguished from those of dead
        processes."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _make(self, path: Path, mode: int) -> None:
        """With its parents. A new folder is on the disk as its first file is."""
        if path.is_dir():
            return
        self._make(path.parent, mode)
        self._disk.make(path, mode)
        self._disk.flush(path.parent)

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _taken(descriptor: int, name: str) -> bool:
    try:
        _change(descriptor, name, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def _change(descriptor: int, name: str, kind: int) -> None:
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, 1, 0))
