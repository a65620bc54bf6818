"""Whether an informer's cache is up to date, and if not, since when and why.

It is while a list was just read, an event came in, or a watch has been open for longer than a request takes to
fail: on a quiet watch not even a bookmark comes for a minute.
"""

from collections.abc import Callable
from dataclasses import dataclass

OPEN = 15.0
"""Seconds: a watch that has not failed by then is open. A request fails sooner."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The cache is not kept up to date: for how many seconds now, and why."""

    seconds: float
    reason: str


class Freshness:
    """Of one cache, by a monotonic clock that is given when its informer begins."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = lambda: 0.0
        self._down_since: float | None = None
        self._watching_since: float | None = None
        self._reason = "nothing was listed yet"

    def begin(self, now: Callable[[], float]) -> None:
        """Nothing is in the cache."""
        self._now = now
        self._down_since = now()

    def works(self) -> None:
        """Something came in: the cache is as of now."""
        self._down_since = None

    def watch(self) -> None:
        """A watch is being opened."""
        self._watching_since = self._now()

    def ended(self) -> None:
        """The watch came to its end in good order."""
        self._down_since = self._watching_since = None

    def failed(self, reason: str) -> None:
        """Listing or watching did not go on."""
        if self._down_since is None or self.is_open():
            self._down_since = self._now()
        self._watching_since = None
        self._reason = reason

    def outage(self) -> Outage | None:
        """None while the cache is kept up to date."""
        if self._down_since is None or self.is_open():
            return None
        return Outage(self._now() - self._down_since, self._reason)

    def is_open(self) -> bool:
        """Whether a watch is, as far as can be told."""
        return self._watching_since is not None and self._now() - self._watching_since >= OPEN
