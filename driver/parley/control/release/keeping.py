"""How long a claim stays allocated that no pod uses: by `whenUnused` of its class.

The deadline is set whenever a pod leaves that was bound, and recorded in the claim's status by the write that
takes the pod out of `reservedFor`. So whoever leads next goes by it. After a forced deletion the time begins when
the last node has confirmed that the claim is not prepared any more. A pod that was never bound changes nothing:
what was allocated for it alone is released with it.
"""

from datetime import datetime, timedelta

from parley.control.caches.cluster import ClusterCache
from parley.control.holding import Holding
from parley.kube.clock import Clock


class Keeping:
    """Sets and reads until when allocated claims are kept without users (`Holding.kept_until`)."""

    def __init__(self, cluster: ClusterCache, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def left(self, holding: Holding, *, bound: bool) -> None:
        """A pod leaves the holding, which was `bound` or may have been. While its class is gone, perhaps to be
        replaced, the deadline stays as it was."""
        if bound:
            holding.used = True
            if self._cluster.class_(holding.class_name) is not None:
                holding.kept_until = self._deadline(holding)

    def begin_anew(self, holding: Holding) -> None:
        """A pod may have used the holding until now: the time begins again."""
        if holding.removing or holding.kept_until is None:
            return
        if (deadline := self._deadline(holding)) is not None:
            holding.kept_until = max(holding.kept_until, deadline)

    def _deadline(self, holding: Holding) -> datetime | None:
        class_ = self._cluster.class_(holding.class_name)
        keeps = class_.when_unused if class_ is not None else None
        if keeps is None or not holding.named or holding.immediate or holding.standalone:
            return None
        return self._clock() + timedelta(seconds=keeps.keep_seconds)

    def seconds_left(self, holding: Holding) -> float:
        """For how long the holding stays without users; 0 if it does not."""
        if holding.kept_until is None:
            return 0.0
        return max((holding.kept_until - self._clock()).total_seconds(), 0.0)
