"""How long to wait after the n-th failure in a row. Counting failures, and sleeping, is left to the caller."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first` up to `longest` seconds, less a random part of up to `jitter` (0 to 1) of it.

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
