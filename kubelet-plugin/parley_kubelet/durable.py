"""A folder whose files are whole or absent, also after a crash or a power cut.

Decides how a file reaches the disk; what is in it is its owner's affair. A new version is written beside the
old one, flushed, and renamed over it; the folder is flushed too, because the name is in there. What can be made
again after a power cut need not be flushed. Everything here blocks: call it in a thread if the disk may be slow.
"""

import asyncio
import fcntl
import hashlib
import os
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_TEMPORARY = ".parley-new-"
_LOCK = "lock"
_NAMES_LOCK = "lock-names"
_RETRY = 0.02
"""Seconds between two attempts at the lock of a name; nobody else wants it but during a rolling update."""


class Folder:
    """A folder of this plugin, made if it is missing."""

    def __init__(self, path: Path, mode: int = 0o750) -> None:
        self.path = path
        path.mkdir(mode=mode, parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """The file's content, None if there is no such file. Raises OSError."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, mode: int = 0o600, *, flush: bool = True) -> None:
        """Replace the file; when this returns, it is on the disk, unless `flush` is false: then it is whole or
        absent for all who look, but not after a power cut. Raises OSError, and the old file stands."""
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                if flush:
                    os.fsync(file.fileno())
            Path(temporary).rename(self.path / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        if flush:
            self._flush()

    def remove(self, name: str) -> None:
        """Remove the file; it is no error if it is gone. Not flushed. Raises OSError."""
        (self.path / name).unlink(missing_ok=True)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The files whose names start like this, sorted."""
        return tuple(sorted(path.name for path in self.path.iterdir() if path.name.startswith(prefix)))

    def sweep(self) -> None:
        """Remove what a crash in the middle of a write left behind. Call it before anything is written."""
        for name in self.names(_TEMPORARY):
            (self.path / name).unlink(missing_ok=True)

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

        A lock of the open file description on one byte of a file: a file per name could not be removed safely.
        """
        descriptor = self._open(_NAMES_LOCK)
        try:
            while not _taken(descriptor, name):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_RETRY)
            yield
        finally:
            os.close(descriptor)

    def is_name_locked(self, name: str) -> bool:
        """Whether somebody, in this process or another, does something for `name` now."""
        descriptor = self._open(_NAMES_LOCK)
        try:
            return not _taken(descriptor, name)
        finally:
            os.close(descriptor)

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _flush(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _taken(descriptor: int, name: str) -> bool:
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0))
    except BlockingIOError:
        return False
    return True
