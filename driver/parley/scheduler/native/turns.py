"""Whose turn it is with an exclusive named claim that is free: of the pods that it kept out the one with the
highest priority, of equal ones the one that came first; before these a pod that others are evicted for.

A claim that comes free wakes the first pod that waits for it. Whoever is looked at by chance before that one, or
while a driver allocates for it, waits behind. A pod for which a standalone driver allocates the claim has its turn
until that is done, whoever comes. A pod that is first but can't have the claim now (no node will do,
a limit, a driver that failed) waits for that, not for the claim, and keeps nobody out.
"""

from collections.abc import Sequence

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.allocation import Allocator
from parley.control.claims.messages import first_in_line
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.objects.pod import priority
from parley.control.state import State
from parley.negotiation.waiting import Topic
from parley.scheduler.pods import Pods


def out_of_turn(
    pods: Pods, allocator: Allocator, state: State, pod: Pod, claims: Sequence[PodClaim]
) -> Problem | None:
    """What keeps the pod from a free claim of its own: another pod's turn. That pod is looked at."""
    nominations = state.nominations
    for claim in claims:
        expected = state.ledger.expected_for(pod.metadata.namespace, claim.name)
        if not claim.is_free or (expected is not None and expected.uid == pod.metadata.uid):
            continue
        topic: Topic = ("claim", pod.metadata.namespace, claim.name)
        preempts = nominations.has_claim(pod.metadata.uid, claim.uid)
        first = pods.first_kept_out(pod, topic, only_above=preempts)
        if first is not None:
            pods.requeue(first)
        kept = nominations.keep_claim(claim.uid, pod.metadata.uid, priority(pod))
        if first is not None or kept or allocator.allocating(claim.uid):
            message = first_in_line(pod.metadata.namespace, claim.name)
            return Problem(reasons.CLAIM_IN_USE, message, (topic,), transient=True)
    return None
