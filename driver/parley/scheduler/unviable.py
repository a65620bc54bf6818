"""Why nothing can be done for a pod now: in words, what would change it, and who waits for the same. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.limits import topic as limit_topic
from parley.control.nowhere import nowhere, where
from parley.control.podclaims import NODES, ROOM, PodClaim, Problem, Topic
from parley.negotiation.rounds import Outcome
from parley.scheduler.attempts import Attempt
from parley.scheduler.questions import Excess, Question


def nothing_viable(
    total: int, claims: Sequence[PodClaim], drivers: Iterable[str], misfits: Mapping[str, str], outcome: Outcome
) -> Problem:
    """About a pod for which none of the cluster's `total` nodes will do.

    `drivers` are those inside that were asked, `misfits` says why nodes did not come into question.
    """
    code, message = nowhere(total, misfits, outcome.refused, asked=bool(outcome.candidates))
    held = [claim.holding for claim in claims if claim.holding is not None]
    message += "".join(f". Claim {one.namespace}/{one.claim} is {where(one.nodes)}" for one in held)
    topics: list[Topic] = [("driver", driver) for driver in drivers]
    topics += [("claim", one.namespace, one.claim) for one in held]
    return Problem(code, message, (*topics, *class_topics(claims), NODES, ROOM))


def bad_parameters(pod: Pod, pending: Sequence[PodClaim], message: str) -> tuple[Problem, Hashable]:
    """Drivers don't understand what the pending claims ask for; with the line of those who wait for the same."""
    topics = (*class_topics(pending), *(("claim", pod.metadata.namespace, claim.name) for claim in pending))
    return Problem(reasons.PARAMETERS_INVALID, message, topics), message


def beyond_limit(namespace: str, over: Excess) -> tuple[Problem, Hashable]:
    """The namespace holds as much as a class allows it; with the line of those who wait for the same."""
    topics: tuple[Topic, ...] = (limit_topic(over.class_name, namespace), ("class", over.class_name))
    problem = Problem(reasons.LIMIT_REACHED, over.message, topics)
    return problem, (problem.code, *topics, over.wanted)


def class_topics(claims: Sequence[PodClaim]) -> list[Topic]:
    """What changes when a class does that is to decide about the pod."""
    return [("class", claim.class_.metadata.name) for claim in claims if claim.class_ is not None]


def waiting_line(pod: Pod, asked: Question, attempt: Attempt, only: Set[str] | None) -> Hashable:
    """Pods in one line are alike in all that decides: what can't serve the first can't serve the others."""
    if attempt.excluded or attempt.refused:
        return pod.metadata.uid
    return asked.signature(pod), only
