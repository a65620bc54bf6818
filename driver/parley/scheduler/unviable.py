"""That nothing is viable for a pod: in words, what would change it, and who waits for the same. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set

from parley.api.builtin import Pod
from parley.control.nowhere import nowhere, where
from parley.control.podclaims import NODES, PodClaim, Problem, Topic
from parley.negotiation.rounds import Outcome
from parley.scheduler.attempts import Attempt
from parley.scheduler.questions import Question


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
    return Problem(code, message, (*topics, *class_topics(claims), NODES))


def class_topics(claims: Sequence[PodClaim]) -> list[Topic]:
    """What changes when a class does that is to decide about the pod."""
    return [("class", claim.class_.metadata.name) for claim in claims if claim.class_ is not None]


def waiting_line(pod: Pod, asked: Question, attempt: Attempt, only: Set[str] | None) -> Hashable:
    """Pods in one line are alike in all that decides: what can't serve the first can't serve the others."""
    if attempt.excluded or attempt.refused:
        return pod.metadata.uid
    return asked.signature(pod), only
