"""The order in which pods get a free exclusive named claim: first a pod for which others are evicted, then the
pods that the claim kept out, by priority and then by age.

A claim that becomes free wakes the first pod that waits for it. A pod that is reconciled before that one, or while
a driver allocates for it, waits behind it. A pod for which a standalone driver allocates the claim stays first
until that is done. A first pod that can't have the claim now (no viable node, a limit, a driver that failed) waits
for the end of that, not for the claim, and keeps no other pod out.
"""

from collections.abc import Sequence

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.claims.messages import first_in_line
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.objects.pod import priority
from parley.control.state import State
from parley.negotiation.waiting import Topic
from parley.scheduler.pods import Pods


def pod_ahead_problem(pods: Pods, state: State, pod: Pod, claims: Sequence[PodClaim]) -> Problem | None:
    """The problem that another pod is ahead for a free claim of the pod, if one is. The other pod is requeued."""
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
        kept = nominations.is_claim_kept(claim.uid, pod.metadata.uid, priority(pod))
        if first is not None or kept or state.ledger.allocates(claim.uid, but=pod.metadata.uid):
            message = first_in_line(pod.metadata.namespace, claim.name)
            return Problem(reasons.CLAIM_IN_USE, message, (topic,), transient=True)
    return None
