"""Whether an informer's cache is up to date, and if not, since when and why.

A cache is up to date after a list or an event, or once a watch has been open for longer than a request takes to
fail: a quiet watch sends not even a bookmark for a minute.
"""

from collections.abc import Callable
from dataclasses import dataclass

OPEN = 15.0
"""Seconds after which a watch that has not failed counts as open: a failing request fails sooner."""


@dataclass(frozen=True, slots=True)
class Outage:
    """For how many seconds a cache has not been up to date, and why."""

    seconds: float
    reason: str


class Freshness:
    """Tracks whether one cache is up to date, by a monotonic clock that is set when its informer starts."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = lambda: 0.0
        self._down_since: float | None = None
        self._watching_since: float | None = None
        self._reason = "nothing was listed yet"

    def begin(self, now: Callable[[], float]) -> None:
        """Starts with an empty cache."""
        self._now = now
        self._down_since = now()

    def succeeded(self) -> None:
        """Notes a list or an event: the cache is up to date now."""
        self._down_since = None

    def watch(self) -> None:
        """Notes that a watch is being opened."""
        self._watching_since = self._now()

    def ended(self) -> None:
        """Notes that the watch ended normally."""
        self._down_since = self._watching_since = None

    def failed(self, reason: str) -> None:
        """Notes that listing or watching failed."""
        if self._down_since is None or self.is_open():
            self._down_since = self._now()
        self._watching_since = None
        self._reason = reason

    def outage(self) -> Outage | None:
        """The present outage; None while the cache is up to date."""
        if self._down_since is None or self.is_open():
            return None
        return Outage(self._now() - self._down_since, self._reason)

    def is_open(self) -> bool:
        """Whether a watch seems to be open."""
        return self._watching_since is not None and self._now() - self._watching_since >= OPEN
