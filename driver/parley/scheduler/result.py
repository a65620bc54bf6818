"""The result of reconciling a pod: done, requeue it, or let it wait in a line. `Pods.apply` acts on it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from parley.control.claims.podclaims import Problem
from parley.control.decision.decide import Blocked
from parley.kube.queue import Requeue
from parley.negotiation.waiting import Helps, Topic


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod waits in `line` until one of the topics changes, and for `after` seconds at most if that is given.

    `problem` is what its user has to know. `helps` as in `Blocked`. `keeps_place`: the pod keeps its place if it
    waits for these topics already. `keeps_turn`: no pod overtakes it before it is reconciled again.
    """

    line: Hashable
    topics: Sequence[Topic]
    problem: Problem | None = None
    helps: Helps | None = None
    after: float | None = None
    keeps_place: bool = False
    keeps_turn: bool = False


def wait(blocked: Blocked, after: float | None = None) -> Wait:
    """The wait until what blocks the pod's claims changes. A transient problem is not reported."""
    problem = blocked.problem
    return Wait(
        blocked.line,
        problem.topics,
        None if problem.transient else problem,
        blocked.helps,
        after,
        keeps_place=problem.transient,
    )


Result = Wait | Requeue | None
"""None: the pod has what it needs, or only a change of its own objects can take it further."""

AT_ONCE = Requeue(0.0)
