"""Back-off: how long to wait after the n-th failure in a row. Sleeping is left to the caller."""

import random
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_ASKED = 60.0
"""The most seconds of a server's Retry-After that count: a proxy that asks for an hour may be back sooner."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A delay that doubles from `first` to `longest` seconds, less a random part: at most `jitter` (0 to 1) of it.

    `random` returns numbers from 0 up to 1; a test passes its own.
    """

    first: float
    longest: float
    jitter: float = 0.0
    random: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` (1 and more) failures in a row."""
        doublings = min(failures - 1, 64)  # beyond that every `longest` is reached, and floats would overflow
        whole = min(self.longest, self.first * 2.0**doublings)
        return whole * (1 - self.jitter * self.random()) if self.jitter else whole


@dataclass(slots=True)
class Pauses:
    """The pauses after failures of one thing, with the back-off `lengths`. Times are on the caller's clock."""

    lengths: Backoff
    count: int = 0
    until: float = 0.0
    """When the latest pause is over; 0 if there was none, or it was ended."""
    begun: float = 0.0

    def begin(self, now: float) -> float:
        """Counts a failure and begins a pause. Returns its length in seconds."""
        self.count += 1
        length = self.lengths.delay(self.count)
        self.begun, self.until = now, now + length
        return length

    def cut_short(self, lengths: Backoff) -> float:
        """Shortens the latest pause to the delay of this back-off, from when it began. Returns its new end."""
        self.until = min(self.until, self.begun + lengths.delay(self.count)) if self.until else 0.0
        return self.until

    def end(self) -> None:
        """Ends the pause. The failures still count, so the next pause is longer."""
        self.until = 0.0

    def left(self, now: float) -> float:
        """The seconds that are left of the pause."""
        return max(self.until - now, 0.0)

    def left_or_begin(self, now: float) -> float:
        """The seconds that are left of the pause; begins one if there is none."""
        return self.until - now if self.until else self.begin(now)
