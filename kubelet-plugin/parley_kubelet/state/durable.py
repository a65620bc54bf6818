"""A folder whose files are whole or absent, also after a crash or a power cut.

Decides how a file reaches the disk, not what is in it. A new version is written beside the old one, flushed, and
renamed over it; the folder is flushed too, because it has the name. Files that can be recreated after a power cut
need not be flushed. Everything here blocks: call it in a thread if the disk may be slow.

A folder may keep a spare file, whose blocks are used if the disk is full: releasing what fills a disk has to be
recorded first. Each file of such a folder has as many blocks as the spare file. On a full disk the spare file is
overwritten and exchanged with the file that it replaces: so the next write has a spare file too, even if others
take every block that becomes free.
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
from parley_kubelet.driver.attributes import disable_copy_on_write

_TEMPORARY = ".parley-new-"
_LOCK = "lock"
_NAMES_LOCK = "lock-names"
_SPARE_FILE = "spare"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PADDING: Final = b" "
"""Fills a spare file behind its data: JSON may end with any number of spaces."""

_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2)."""

_BLOCK: Final = 512
"""Bytes of a block as stat(2) counts them."""

_EXCHANGE: Final = 2
"""RENAME_EXCHANGE of renameat2(2)."""

_AT_FDCWD: Final = -100
"""AT_FDCWD of renameat2(2): paths are relative to the current directory."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
SPARE: Final = 1024 * 1024
"""Bytes of a spare file for a checkpoint of some hundred claims; it grows with their number."""

_RETRY = 0.02
"""Seconds between two attempts to lock a name; processes compete for one only during a rolling update."""


class Disk:
    """The system calls by which a folder changes the disk. The process or the machine may die between any two of
    them. All raise OSError."""

    def make(self, folder: Path, mode: int) -> None:
        """Create a folder in an existing one; no error if it exists."""
        folder.mkdir(mode=mode, exist_ok=True)

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        """Create a file under a temporary name; returns its path."""
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
        """Create the file, if it does not exist, with at least `size` bytes of allocated blocks."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def reserve(self, path: Path, size: int) -> None:
        """Allocate blocks for `size` bytes to a file without changing its length."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _LIBC.fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
                raise OSError(number := ctypes.get_errno(), os.strerror(number), str(path))
        finally:
            os.close(descriptor)

    def overwrite(self, path: Path, data: bytes, mode: int) -> None:
        """Overwrite the content of an existing file in its blocks; it does not become shorter."""
        with path.open("r+b") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data.ljust(os.fstat(file.fileno()).st_size, _PADDING))

    def flush(self, path: Path) -> None:
        """Flush a file's content, or the names in a folder, so that they survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file; an existing file of the new name is replaced."""
        path.rename(target)

    def exchange(self, path: Path, target: Path) -> None:
        """Exchange the names of two existing files; a plain `rename` if the file system can't do that."""
        if _LIBC.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(target), _EXCHANGE):
            self.rename(path, target)

    def remove(self, path: Path) -> None:
        """Remove a file; no error if it does not exist."""
        path.unlink(missing_ok=True)


DISK: Final = Disk()


class Folder:
    """A folder of this plugin, created if it is missing. `spare` is the size of its spare file in bytes, which
    grows for files of more than half of that; 0 for none."""

    def __init__(self, path: Path, mode: int = 0o750, disk: Disk = DISK, spare: int = 0) -> None:
        self.path = path
        self._disk = disk
        self._spare = spare
        self._names_descriptor = -1
        """The file descriptor of the names' lock file; open while there are `_lockers`, who hold a name or
        wait."""
        self._lockers = 0
        self._locked: set[str] = set()
        self._make(path, mode)
        if spare:
            with trees.opened(path) as folder:
                disable_copy_on_write(folder)
        self._keep_spare()

    def read(self, name: str) -> bytes | None:
        """The file's content, None if there is no such file. Raises OSError."""
        try:
            found = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        return found.rstrip(_PADDING) if self._spare else found

    def write(self, name: str, data: bytes, mode: int = 0o600, *, flush: bool = True) -> None:
        """Replace the file. When this returns, it is on the disk; unless `flush`, it is whole or absent for all
        readers, but maybe not after a power cut. Raises OSError: the old file is then still there, or the new one
        if only the last flush failed."""
        try:
            with self._write_lock(fcntl.LOCK_SH):
                self._write_new(name, data, mode, flush=flush)
        except OSError as error:
            if error.errno not in _FULL or not self._has_spare(len(data)):
                raise
            with self._write_lock(fcntl.LOCK_EX):
                self._write_spare(name, data, mode)
        if flush:
            self._disk.flush(self.path)
        self._keep_spare(len(data))

    def _write_new(self, name: str, data: bytes, mode: int, *, flush: bool) -> None:
        temporary = self._disk.create(self.path, data, mode)
        try:
            if self._spare:
                with suppress(OSError):
                    self._disk.reserve(temporary, self._spare_size(len(data)))
            if flush:
                self._disk.flush(temporary)
            self._disk.rename(temporary, self.path / name)
        except BaseException:
            self._disk.remove(temporary)
            raise

    def _write_spare(self, name: str, data: bytes, mode: int) -> None:
        spare, file = self.path / _SPARE_FILE, self.path / name
        self._disk.flush(self.path)  # else, on the disk, the last exchange may not have happened yet
        self._disk.overwrite(spare, data, mode)
        self._disk.flush(spare)
        if file.exists():
            self._disk.exchange(spare, file)
        else:
            self._disk.rename(spare, file)

    def _has_spare(self, size: int) -> bool:
        """Whether there is a spare file with at least `size` bytes of allocated blocks."""
        spare = self.path / _SPARE_FILE
        return bool(self._spare) and spare.exists() and spare.stat().st_blocks * _BLOCK >= size

    def _keep_spare(self, size: int = 0) -> None:
        """Create the spare file, or enlarge it for a file of `size` bytes. If the disk is full, the next write
        tries again."""
        if self._spare and not self._has_spare(room := self._spare_size(size)):
            with suppress(OSError):
                self._disk.allocate(self.path / _SPARE_FILE, room)

    def _spare_size(self, size: int) -> int:
        """The bytes of a spare file that also fits the next version of a file of `size` bytes."""
        half = self._spare // 2
        return max(self._spare, half * (2 + size // half))

    def remove(self, name: str) -> None:
        """Remove the file; no error if it does not exist. Not flushed. Raises OSError."""
        self._disk.remove(self.path / name)

    def is_removed(self) -> bool:
        """Whether somebody removed the folder. In a container its mount stays at the path, and another folder that
        is made in its place is not seen."""
        try:
            return self.path.stat().st_nlink == 0
        except FileNotFoundError:
            return True

    def names(self, prefix: str) -> tuple[str, ...]:
        """The names of files that start with `prefix`, sorted."""
        return tuple(sorted(path.name for path in self.path.iterdir() if path.name.startswith(prefix)))

    def sweep(self) -> None:
        """Remove temporary files that a crash in the middle of a write left. Waits for other processes' writes."""
        with self._write_lock(fcntl.LOCK_EX):
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
        """Lock `name` against other tasks of this process and other processes. Waits.

        Takes an open file description lock on one byte of a file: a file per name could not be removed safely. One
        description serves all names: hundreds may be locked at a time.
        """
        if not self._lockers:
            self._names_descriptor = self._open(_NAMES_LOCK)
        self._lockers += 1
        try:
            while name in self._locked or not _try_lock(self._names_descriptor, name):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_RETRY)
            self._locked.add(name)
            try:
                yield
            finally:
                self._locked.remove(name)
                _set_lock(self._names_descriptor, name, fcntl.F_UNLCK)
        finally:
            self._lockers -= 1
            if not self._lockers:
                os.close(self._names_descriptor)

    def is_name_locked(self, name: str) -> bool:
        """Whether this process or another holds the lock of `name` now."""
        descriptor = self._open(_NAMES_LOCK)
        try:
            return not _try_lock(descriptor, name)
        finally:
            os.close(descriptor)

    @contextmanager
    def free_names_locked(self, names: Iterable[str]) -> Iterator[frozenset[str]]:
        """Locks those of the names that nobody holds, and yields them; they are locked until the block ends."""
        descriptor = self._open(_NAMES_LOCK)
        try:
            yield frozenset(name for name in names if _try_lock(descriptor, name))
        finally:
            os.close(descriptor)

    @contextmanager
    def _write_lock(self, how: int) -> Iterator[None]:
        """Locks the folder itself: shared while a write has a temporary file, exclusive to remove those of dead
        processes or to use the spare file."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _make(self, path: Path, mode: int) -> None:
        """Create the folder with its parents. A new folder's name is flushed, so that its files are not lost with
        it."""
        if path.is_dir():
            return
        self._make(path.parent, mode)
        self._disk.make(path, mode)
        self._disk.flush(path.parent)

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int, name: str) -> bool:
    try:
        _set_lock(descriptor, name, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def _set_lock(descriptor: int, name: str, kind: int) -> None:
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, 1, 0))
