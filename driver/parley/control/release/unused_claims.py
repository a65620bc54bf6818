"""How long a claim stays allocated without users: `whenUnused` of its class.

The deadline is set whenever a bound pod's use of the claim ends, and is recorded in the claim's status by the
write that removes the pod from `reservedFor`. So the next leader keeps to it. After a forced deletion the time
begins when the last node has confirmed that the claim is not prepared any more. A pod that was never bound sets no
deadline: a claim that was allocated for such pods only is released with the last.
"""

from datetime import datetime, timedelta

from parley.control.caches.cluster import ClusterCache
from parley.control.holding import Holding
from parley.kube.clock import Clock


class UnusedClaimDeadlines:
    """Sets and reads the deadlines until which claims stay allocated without users (`Holding.kept_until`)."""

    def __init__(self, cluster: ClusterCache, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def pod_left(self, holding: Holding, *, bound: bool) -> None:
        """Set the deadline as a pod's use of the holding ends, if the pod was `bound` or may have been. While the
        class is gone, perhaps to be replaced, the deadline stays as it was."""
        if bound:
            holding.used = True
            if self._cluster.class_(holding.class_name) is not None:
                holding.kept_until = self._deadline(holding)

    def renew(self, holding: Holding) -> None:
        """Begin the time again, because a pod may have used the holding until now."""
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
        """The seconds for which the holding stays allocated without users; 0 if it does not."""
        if holding.kept_until is None:
            return 0.0
        return max((holding.kept_until - self._clock()).total_seconds(), 0.0)
