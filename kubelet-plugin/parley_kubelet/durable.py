"""A folder whose files are whole or absent, also after a crash or a power cut.

Decides how a file reaches the disk; what is in it is its owner's affair. A new version is written beside the
old one, flushed, and renamed over it; the folder is flushed too, because the name is in there. Writing takes
milliseconds and happens on the event loop: nothing of this process comes between a caller's reading and its
writing.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TEMPORARY = ".parley-new-"


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

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Replace the file; when this returns, it is on the disk. Raises OSError, and the old file stands."""
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).rename(self.path / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._flush()

    def remove(self, name: str) -> None:
        """Remove the file; it is no error if it is gone. Raises OSError."""
        (self.path / name).unlink(missing_ok=True)
        self._flush()

    def names(self, prefix: str) -> tuple[str, ...]:
        """The files whose names start like this, sorted."""
        return tuple(sorted(path.name for path in self.path.iterdir() if path.name.startswith(prefix)))

    def sweep(self) -> None:
        """Remove what a crash in the middle of a write left behind. Call it before anything is written."""
        for name in self.names(_TEMPORARY):
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of this folder: during a rolling update two plugins share it."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _flush(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
