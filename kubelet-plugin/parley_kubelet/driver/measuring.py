"""How much of the disk a tree uses whose content is somebody else's.

A tree is walked depth first, by open directories, and no link is followed. So a walk needs memory and open files
for its deepest directories only, never for the number of its files; below `DEEPEST` of them nothing is looked at.
Its owner may change the tree meanwhile, and may make it as large as the disk allows: therefore a walk works for a
share of the time, in short turns, and ends when it has worked for long enough. What it could not count it says.

Counted are blocks, as du(1) does: holes of sparse files count nothing, and a file with several names counts once,
in equal parts. A file that was removed and is still open is in no directory, and not counted.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from parley_kubelet.driver import trees

DEEPEST: Final = 100
"""Directories below each other that are looked at; each takes two open files while those in it are."""

_BLOCK: Final = 512
"""Bytes; stat(2)."""

_TURN: Final = 0.01
"""Seconds of work between two pauses: nothing else of the process waits longer for it."""

_LOOK: Final = 64
"""Files between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a tree uses: bytes, and how many files, directories among them. `missing` is why there may be more, ""
    if there is not."""

    bytes: int
    files: int
    missing: str = ""


class TakesTooLong(Exception):
    """Raised when a walk has worked for all of its time."""


class Pace:
    """Lets work go on for a `share` of the time, and for so many `seconds` in all."""

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
        """Call it for every file. Raises TakesTooLong."""
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
    """What the directory of that name in an open one uses. Raises OSError if there is none."""
    with trees.entered(parent, name) as top:
        walk = _Walk(top, pace)
        try:
            walk.directory(top, 0)
        except TakesTooLong:
            walk.missing = f"it has too many files: only {walk.files} of them were measured"
        return Measured(int(walk.bytes), walk.files, walk.missing)


class _Walk:
    """Counts what is below an open directory."""

    def __init__(self, top: int, pace: Pace) -> None:
        self._pace = pace
        self._mount = trees.mount_of(top)
        self.bytes = 0.0
        self.files = 0
        self.missing = ""

    def directory(self, directory: int, depth: int) -> None:
        """Count what is in it."""
        with os.scandir(directory) as entries:
            for entry in entries:
                self._pace.step()
                try:
                    self._count(entry, directory, depth)
                except (FileNotFoundError, NotADirectoryError):
                    pass  # it was removed, or is another one, since it was listed
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
            if trees.mount_of(inner) == self._mount:  # what is mounted there is not its owner's
                self.directory(inner, depth + 1)
