"""The limit of evictions within a minute. Pure."""

from collections import deque

MOST_EVICTIONS = 60
"""The limit of evictions within a minute; exceeded only by a single plan that needs more."""

FOR_OTHERS = MOST_EVICTIONS // 4
"""How many of these are left for namespaces whose pods have caused few evictions: one namespace may have very many
pods of a high priority, and pods of its own that it lets them evict."""

FEW_EVICTIONS = 3
"""The most evictions within a minute that are few."""

_MINUTE = 60.0


class EvictionBudget:
    """Counts evictions, by the preemptor's namespace. Times are those of the event loop's clock."""

    def __init__(self) -> None:
        self._made: deque[tuple[float, str]] = deque()

    def note(self, namespace: str, time: float) -> None:
        """Note an eviction for a pod of the namespace."""
        self._made.append((time, namespace))

    def seconds_left(self, namespace: str, evictions: int, time: float) -> float:
        """In how many seconds so many pods may be evicted for a pod of the namespace; 0 if now."""
        while self._made and self._made[0][0] <= time - _MINUTE:
            self._made.popleft()
        own = sum(one == namespace for _, one in self._made)
        most = MOST_EVICTIONS if own + evictions <= FEW_EVICTIONS else MOST_EVICTIONS - FOR_OTHERS
        beyond = len(self._made) + min(evictions, most) - most
        return self._made[beyond - 1][0] + _MINUTE - time if beyond > 0 else 0.0
