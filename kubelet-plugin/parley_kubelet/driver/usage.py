"""Measures the disk usage of directories periodically, in a thread that runs while one is due.

Directories are measured one after the other; namespaces take turns, each with the one that has waited longest. The
pause grows with the duration of the last measurement, so that a large tree costs no more CPU than a small one. A
directory that is not in use any more is measured once more: it does not grow afterwards.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import Final

import structlog

from parley_kubelet.driver import measuring
from parley_kubelet.driver.measuring import Measured, Pace

PAUSE: Final = 60.0
"""Seconds between two measurements of a directory, at least."""

_REST: Final = 10
"""The pause after a measurement is at least so many times its duration."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Directory:
    namespace: str
    in_use: bool = True
    due: float = 0.0
    measured: Measured | None = None


class DiskUsage:
    """The usage of directories, by their names in the directory that `opened` opens."""

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[int]],
        pace: Callable[[], Pace] = Pace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._pace = pace
        self._clock = clock
        self._followed: dict[str, _Directory] = {}
        self._measured_at: dict[str, float] = {}
        """By namespace, when one of its directories was last measured; cleared whenever none is due."""
        self._thread = threading.Thread()

    def follow(self, in_use: Mapping[str, str]) -> None:
        """Measure the directories in use, by name with their namespaces, when they are due, and those that were in
        use until now once more."""
        now = self._clock()
        for name, namespace in in_use.items():
            one = self._followed.setdefault(name, _Directory(namespace, due=now))
            if not one.in_use:
                one.in_use, one.due = True, now
        for name, one in list(self._followed.items()):
            if one.in_use and name not in in_use:
                one.in_use, one.due = False, now
        if not self._thread.is_alive() and self._due():
            self._thread = threading.Thread(target=self._measure, name="workspace-sizes", daemon=True)
            self._thread.start()

    def forget(self, name: str) -> None:
        """Stop measuring a directory that is removed."""
        self._followed.pop(name, None)

    def of(self, name: str) -> Measured | None:
        """The last measurement of a directory; None if it was not measured yet, or is gone."""
        one = self._followed.get(name)
        return None if one is None else one.measured

    def names(self) -> frozenset[str]:
        """The directories that are followed: in use now, or earlier and not removed."""
        return frozenset(self._followed)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing is due."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _due(self) -> list[tuple[str, _Directory]]:
        """The due directories: the first of each namespace, then the second of each, and so on; namespaces are
        sorted by when they were last measured."""
        now = self._clock()
        due = [(name, one) for name, one in list(self._followed.items()) if one.due <= now]
        place: defaultdict[str, count[int]] = defaultdict(count)

        def turn(following: tuple[str, _Directory]) -> tuple[int, float]:
            namespace = following[1].namespace
            return next(place[namespace]), self._measured_at.get(namespace, -math.inf)

        return sorted(sorted(due, key=lambda following: following[1].due), key=turn)

    def _measure(self) -> None:
        while due := self._due():
            again = self._clock() + PAUSE
            for name, one in due:
                self._measure_one(name, one)
                self._measured_at[one.namespace] = self._clock()
                if self._clock() >= again:  # others may be due by now, and have an earlier turn
                    break
        self._measured_at.clear()

    def _measure_one(self, name: str, one: _Directory) -> None:
        in_use, began = one.in_use, self._clock()
        try:
            with self._opened() as folder:
                one.measured = measuring.measure(folder, name, self._pace())
        except FileNotFoundError:
            if not in_use:
                self._followed.pop(name, None)
            one.measured = None
        except OSError as error:
            log.warning("not measured", workspace=name, reason=str(error))
        ended = self._clock()
        if not in_use:
            one.due = ended if one.in_use else math.inf
        else:
            one.due = ended + max(PAUSE, _REST * (ended - began)) if one.in_use else ended
