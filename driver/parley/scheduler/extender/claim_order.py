"""The order in which the extender path's pods get a free exclusive named claim: the highest priority first, and
among equal ones the oldest.

A scheduler asks about its pods in an order of its own, by its queue and its back-off. So a pod is rejected as long
as the scheduler is about to ask about one that is ahead of it. A scheduler does not ask about a pod for which it
finds no node itself: such a pod is ahead for a few seconds only.
"""

from collections.abc import Iterator, Set
from itertools import chain
from typing import NamedTuple

from parley.api.builtin import Pod
from parley.control.caches.indexes import indexed_claims, named_claims
from parley.control.objects.mirror import is_shareable
from parley.control.objects.pod import is_done
from parley.control.state import State
from parley.kube.cache import Key
from parley.negotiation.waiting import Topic
from parley.scheduler.extender.rejections import Rejections
from parley.scheduler.pods import Pods


class PodAhead(NamedTuple):
    """Another pod is ahead for the claim, until that time of the event loop's clock."""

    claim: Key
    until: float


class ClaimOrder:
    """Determines whether a pod would overtake another one of the extender path."""

    def __init__(self, state: State, pods: Pods, rejections: Rejections) -> None:
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._pods = pods
        self._rejections = rejections

    def pod_ahead(self, pod: Pod) -> PodAhead | None:
        """The claim for which another pod is ahead of this one; None if there is no such pod."""
        claims = [key for key in named_claims(pod) if self._is_exclusive(key, pod)]
        topics = frozenset(("claim", *key) for key in claims)
        for other in chain(self._waiting(pod, topics), self._unasked(pod, frozenset(claims))):
            until = self._rejections.call_expected_until(other, topics)
            if until is not None:
                of_both = frozenset(named_claims(other))
                return PodAhead(next((key for key in claims if key in of_both), claims[0]), until)
        return None

    def _is_exclusive(self, key: Key, pod: Pod) -> bool:
        """Whether the claim is exclusive, and this pod does not use it yet."""
        mirror, holding = self._cluster.mirror(key), self._ledger.of_claim(*key)
        if mirror is None or is_shareable(mirror):
            return False
        return holding is None or pod.metadata.uid not in holding.pods

    def _waiting(self, pod: Pod, topics: Set[Topic]) -> Iterator[Pod]:
        """The rejected pods ahead of this one that wait for one of the claims. Each once, like below, however many
        claims it shares with this one: a tenant may have thousands of pods with hundreds of claims."""
        for key in self._pods.waiting_before(self._pods.attempt(pod).place, topics):
            if (other := self._cluster.pod(key)) is not None:
                yield other

    def _unasked(self, pod: Pod, claims: Set[Key]) -> Iterator[Pod]:
        """The pods ahead of this one that name one of the claims and that a new leader was not asked about yet."""
        place = self._pods.attempt(pod).place
        for key in self._rejections.expected_calls_in(pod.metadata.namespace) if claims else ():
            other = self._cluster.pod(key)
            if other is None or not other.spec.resource_claims or other.spec.node_name or is_done(other):
                continue
            if self._pods.attempt(other).place < place and not claims.isdisjoint(indexed_claims(other)):
                yield other
