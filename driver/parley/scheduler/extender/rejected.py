"""Pods that no node of their scheduler would do for: what it was told, and whether anything has changed since.

A scheduler asks again at every event of any kind. As long as nothing has changed that was decided on, the answer
is the same bytes. When something has, the scheduler may not know: then its pod is changed, which makes it ask.
"""

from dataclasses import dataclass, field

from parley.control.podclaims import Problem
from parley.scheduler.pods import Pods, now

NUDGE_SECONDS = 0.05
"""So long a scheduler gets to ask again by itself after a change."""


@dataclass(slots=True)
class Rejection:
    """What the scheduler was told about a pod.

    `names` are the nodes that it asked about, as it wrote them; `revision` is that of the topics of the problem.
    `undo`: what the pod holds has to be given back before another answer is possible.
    """

    names: bytes
    answer: bytes
    problem: Problem
    revision: tuple[int, ...]
    undo: bool
    told: bool = False
    outdated_at: float | None = field(default=None)
    nudged: tuple[int, ...] | None = None

    def still_holds(self, names: bytes, pods: Pods) -> bool:
        """Whether the same question has the same answer."""
        return not self.problem.transient and not self.outdated(pods) and self.names == names

    def outdated(self, pods: Pods) -> bool:
        """Whether something changed that was decided on."""
        return self.revision != pods.revision(self.problem.topics)

    def nudge_in(self, pods: Pods, *, clear: bool) -> float | None:
        """In how many seconds the scheduler is to be made ask again; None if it knows, or was made to already.

        `clear`: nothing is in the pod's way any more, which tells the end of a problem that has no topics.
        """
        revision, ended = pods.revision(self.problem.topics), clear and not self.problem.topics
        if revision == self.nudged or (revision == self.revision and not ended):
            return None
        if self.outdated_at is None:
            self.outdated_at = now()
        return max(self.outdated_at + NUDGE_SECONDS - now(), 0.0)
