"""Measures the disk usage of a directory tree whose content is under users' control.

A tree is walked depth first, by open directories, and no link is followed. So a walk needs memory and open files
for the depth of the tree, not for the number of its files; directories below `DEEPEST` levels are not read. Users
may change the tree meanwhile, and make it as large as the disk allows: therefore a walk works for a share of the
time, in short turns, and ends after a total time. The result says what could not be counted.

Blocks are counted, as by du(1): holes of sparse files count nothing, and a file with several names counts once, in
equal parts. A file that was removed but is still open is in no directory, and not counted.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from parley_kubelet.driver import trees

DEEPEST: Final = 100
"""The most levels of directories that are read; each takes two open files while deeper ones are read."""

_BLOCK: Final = 512
"""Bytes of a block as stat(2) counts them."""

_TURN: Final = 0.01
"""Seconds of work between two pauses: other threads of the process wait no longer than that."""

_LOOK: Final = 64
"""Files between two reads of the clock."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The usage of a tree: bytes, and the number of files, including directories. `missing` is why there may be
    more, "" if everything was counted."""

    bytes: int
    files: int
    missing: str = ""


class TakesTooLong(Exception):
    """Raised when a walk has used up its time."""


class Pace:
    """Limits work to a `share` of the time, by sleeping, and to `seconds` in all."""

    def __init__(
        self,
        share: float = 0.1,
        seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rest = 1 / share - 1
        self._left = seconds
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._steps = 0

    def step(self) -> None:
        """Sleeps if the turn is over; to be called for every file. Raises TakesTooLong."""
        self._steps += 1
        if self._steps % _LOOK:
            return
        worked = self._clock() - self._since
        if worked < _TURN:
            return
        self._left -= worked
        if self._left < 0:
            raise TakesTooLong
        self._sleep(worked * self._rest)
        self._since = self._clock()


def measure(parent: int, name: str, pace: Pace) -> Measured:
    """The usage of the directory `name` in the open directory `parent`. Raises OSError if it does not exist."""
    with trees.entered(parent, name) as top:
        walk = _Walk(top, pace)
        try:
            walk.directory(top, 0)
        except TakesTooLong:
            walk.missing = f"it has too many files: only {walk.files} of them were measured"
        return Measured(int(walk.bytes), walk.files, walk.missing)


class _Walk:
    """Counts the files below an open directory."""

    def __init__(self, top: int, pace: Pace) -> None:
        self._pace = pace
        self._mount = trees.mount_of(top)
        self.bytes = 0.0
        self.files = 0
        self.missing = ""

    def directory(self, directory: int, depth: int) -> None:
        """Count the directory's content."""
        with os.scandir(directory) as entries:
            for entry in entries:
                self._pace.step()
                try:
                    self._count(entry, directory, depth)
                except (FileNotFoundError, NotADirectoryError):
                    pass  # it was removed or replaced after it was listed
                except OSError as error:
                    self.missing = self.missing or f"a directory in it can't be read: {error.strerror}"

    def _count(self, entry: os.DirEntry[str], directory: int, depth: int) -> None:
        found = entry.stat(follow_symlinks=False)
        self.files += 1
        if not stat.S_ISDIR(found.st_mode):
            self.bytes += found.st_blocks * _BLOCK / max(found.st_nlink, 1)
            return
        self.bytes += found.st_blocks * _BLOCK
        if depth >= DEEPEST:
            self.missing = self.missing or f"directories more than {DEEPEST} levels deep were not measured"
            return
        with trees.entered(directory, entry.name) as inner:
            if trees.mount_of(inner) == self._mount:  # a file system mounted there is not part of the tree
                self.directory(inner, depth + 1)
