"""When pods were created and bound, by this machine's monotonic clock, and what follows from it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class Times:
    """Moments in seconds, by the pod's name: `created` when its creation was sent, `bound` when a watch told."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    def pods_per_second(self) -> float:
        """From the first creation to the last binding."""
        return round(len(self.bound) / (max(self.bound.values()) - min(self.created.values())), 1)

    def latencies(self) -> list[float]:
        """From creation to binding, each pod's, in rising order."""
        return sorted(moment - self.created[name] for name, moment in self.bound.items())


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least that share (0 to 1) of the values do not exceed."""
    return ordered[max(0, ceil(len(ordered) * share) - 1)]
