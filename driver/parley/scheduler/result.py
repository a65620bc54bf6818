"""The result of reconciling a pod: done, requeue it, or let it wait in a line. The reconciler acts on it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from parley.control.claims.podclaims import Problem
from parley.control.decision.decide import Blocked
from parley.kube.queue import Requeue
from parley.negotiation.waiting import Helps, Topic


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod waits in `line` until one of the topics changes, and for `after` seconds at most if that is given.

    `problem`: what its user has to know. `helps` as in `Blocked`. `stay`: it keeps its place if it waits for these
    topics already, for whatever reason. `keeps_turn`: nobody overtakes it before it is looked at again.
    """

    line: Hashable
    topics: Sequence[Topic]
    problem: Problem | None = None
    helps: Helps | None = None
    after: float | None = None
    stay: bool = False
    keeps_turn: bool = False


def wait(blocked: Blocked, after: float | None = None) -> Wait:
    """Until what blocks the pod's claims has changed. What passes within moments nobody need know."""
    problem = blocked.problem
    return Wait(
        blocked.line,
        problem.topics,
        None if problem.transient else problem,
        blocked.helps,
        after,
        stay=problem.transient,
    )


Result = Wait | Requeue | None
"""None: the pod has what it needs, or only a change of its own objects leads on."""

AT_ONCE = Requeue(0.0)
