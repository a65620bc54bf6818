"""Serves metrics to Prometheus, written out at most once a second, since any client can ask for them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
GOOD_FOR = 1.0
"""Seconds for which a text is served again."""


class Exposition:
    """Writes out a registry's metrics for Prometheus, and serves the same text for a second. `clock` counts
    seconds."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        self._text = b""
        self._until = float("-inf")

    def text(self) -> bytes:
        """The metrics' text, of now or of less than a second ago."""
        if self._clock() >= self._until:
            self._text = generate_latest(self._registry)
            self._until = self._clock() + GOOD_FOR
        return self._text
