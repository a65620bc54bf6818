"""Follows how much of the disk directories use, in a thread that is there while one is to be measured.

One after the other is measured, of each namespace in turn the one that waits longest; again after a pause that
grows with what the last time took, so that a large tree takes no more of the machine than a small one. One that is
not in use any more is measured once again: nobody adds to it afterwards.
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
"""Seconds between two looks at a directory, at least."""

_REST: Final = 10
"""So many times as long as a look took is the pause after it, at least."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Followed:
    namespace: str
    in_use: bool = True
    due: float = 0.0
    measured: Measured | None = None


class DiskUsage:
    """What directories use that are in the one that `opened` opens, by their names."""

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[int]],
        pace: Callable[[], Pace] = Pace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._pace = pace
        self._clock = clock
        self._followed: dict[str, _Followed] = {}
        self._looked: dict[str, float] = {}
        """By namespace, when one of its was last looked at, since there was nothing to be measured."""
        self._thread = threading.Thread()

    def follow(self, in_use: Mapping[str, str]) -> None:
        """Measure these, each with its namespace, and those that were in use until now, when it is time."""
        now = self._clock()
        for name, namespace in in_use.items():
            one = self._followed.setdefault(name, _Followed(namespace, due=now))
            if not one.in_use:
                one.in_use, one.due = True, now
        for name, one in list(self._followed.items()):
            if one.in_use and name not in in_use:
                one.in_use, one.due = False, now
        if not self._thread.is_alive() and self._due():
            self._thread = threading.Thread(target=self._measure, name="workspace-sizes", daemon=True)
            self._thread.start()

    def forget(self, name: str) -> None:
        """It is gone, or about to go."""
        self._followed.pop(name, None)

    def of(self, name: str) -> Measured | None:
        """What it used when it was last measured; None if it was not yet, or is gone."""
        one = self._followed.get(name)
        return None if one is None else one.measured

    def names(self) -> frozenset[str]:
        """Those that are followed: in use now, or before, and there still."""
        return frozenset(self._followed)

    def wait(self, seconds: float | None = None) -> None:
        """Until nothing is to be measured now."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _due(self) -> list[tuple[str, _Followed]]:
        """The first of each namespace, then the second of each; whose turn was longest ago comes first."""
        now = self._clock()
        due = [(name, one) for name, one in list(self._followed.items()) if one.due <= now]
        place: defaultdict[str, count[int]] = defaultdict(count)

        def turn(following: tuple[str, _Followed]) -> tuple[int, float]:
            namespace = following[1].namespace
            return next(place[namespace]), self._looked.get(namespace, -math.inf)

        return sorted(sorted(due, key=lambda following: following[1].due), key=turn)

    def _measure(self) -> None:
        while due := self._due():
            again = self._clock() + PAUSE
            for name, one in due:
                self._look(name, one)
                self._looked[one.namespace] = self._clock()
                if self._clock() >= again:  # others are due by now, and it may be their turn
                    break
        self._looked.clear()

    def _look(self, name: str, one: _Followed) -> None:
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
