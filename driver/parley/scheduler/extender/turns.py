"""Whose turn it is with an exclusive named claim that is free: of this path's pods that wait for it the one with
the highest priority, of equal ones the one that came first.

A scheduler asks about its pods in an order of its own, by its queue and its back-off. So a pod is refused as long
as the scheduler is about to ask about one that stands before it. A scheduler does not ask about a pod for which it
finds no node itself: then the pod's turn ends after a few seconds.
"""

from collections.abc import Iterator
from typing import NamedTuple

from parley.api.builtin import Pod
from parley.control.caches.indexes import named_claims
from parley.control.objects.mirror import is_shareable
from parley.control.objects.pod import over
from parley.control.state import State
from parley.kube.cache import Key
from parley.scheduler.extender.rejections import Rejections
from parley.scheduler.extender.scope import Scope
from parley.scheduler.pods import Pods


class Turn(NamedTuple):
    """Another pod's turn with the claim, which ends at that time of the event loop's clock."""

    claim: Key
    until: float


class Turns:
    """Finds out whether a pod would overtake another one of the same scheduler."""

    def __init__(self, state: State, pods: Pods, scope: Scope, rejections: Rejections) -> None:
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._pods = pods
        self._scope = scope
        self._rejections = rejections

    def of_another(self, pod: Pod) -> Turn | None:
        """The turn of a pod that stands before this one, None if there is no such pod."""
        for key in named_claims(pod):
            mirror, holding = self._cluster.mirror(key), self._ledger.of_claim(*key)
            if mirror is None or is_shareable(mirror):
                continue
            if holding is not None and pod.metadata.uid in holding.pods:
                continue
            asked = (self._rejections.asked_until(other, ("claim", *key)) for other in self._before(pod, key))
            until = next((time for time in asked if time is not None), None)
            if until is not None:
                return Turn(key, until)
        return None

    def _before(self, pod: Pod, claim: Key) -> Iterator[Pod]:
        """The pods that were refused and wait for the claim, by their places, and those about which a new leader
        was not asked yet."""
        place = self._pods.attempt(pod).place
        for key in self._pods.waiting_before(place, ("claim", *claim)):
            if (other := self._cluster.pod(key)) is not None:
                yield other
        for other in self._cluster.pods_naming(claim) if self._rejections.has_unasked else ():
            waits = not other.spec.node_name and not over(other) and self._scope.owns(other)
            if waits and self._pods.attempt(other).place < place:
                yield other
