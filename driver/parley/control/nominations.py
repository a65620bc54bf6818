"""Nominations: the claims that evicted pods release on a node are kept for the pod that they were evicted for, as
kube-scheduler keeps room for a nominated pod. In memory.

A nomination is made before pods are evicted for it, and lasts until its pod is bound or gone, wants another node,
or has had it for `KEPT_SECONDS`. While it lasts, nothing is allocated on the node by the same drivers for pods of
lower or equal priority unless enough is left there (`decision.kept`); nor a named claim that the pod asks for.
Pods of equal priority that are nominated for the same node take what they need as it becomes free. A restarted
controller has no nominations: pods that are terminating by then are found by their deletion timestamps.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.negotiation.requests import Amounts
from parley.sdk import PodReference, Request

KEPT_SECONDS = 600.0
"""The longest time for which a node's claims are kept for a pod."""

LEAST = -(2**31)
"""The lowest priority that a pod can have."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A node that is kept for a pod while other pods on it terminate.

    `requests` are the pod's requests to drivers, `amounts` what it requests of the node, or its claims reserve
    there, in thousandths. `terminating` are the UIDs of the pods that are terminating there or are evicted for
    it, `freed` those of the claims that they hold, by driver. `until` is on the event loop's clock. `claims` are
    the pod's free named claims (`PodClaim.is_free`) that are kept for it, too: names by UID.
    """

    pod: PodReference
    priority: int
    node: str
    requests: Mapping[str, Request[Any, Any]]
    amounts: Amounts
    terminating: frozenset[str]
    freed: Mapping[str, frozenset[str]]
    until: float
    claims: Mapping[str, str] = field(default_factory=dict)

    def covers(self, other: "Nomination") -> bool:
        """Whether the other nomination wants nothing more on the node, and needs no further pod to terminate."""
        return self.keeps(other) and other.terminating <= self.terminating

    def keeps(self, other: "Nomination") -> bool:
        """Whether all that the other nomination keeps for its pod is kept by this one, too."""
        same = other.node == self.node and other.requests == self.requests and other.amounts == self.amounts
        return same and other.claims.keys() <= self.claims.keys()


def _ignore(_: Nomination) -> None:
    """Nothing waits."""


class Nominations:
    """All nominations, by the pod's UID; a pod has one at most. `ended` is called with one that has ended, or
    was replaced by one that keeps less or something else: other pods may have what was kept."""

    def __init__(self, ended: Callable[[Nomination], None] = _ignore) -> None:
        self._ended = ended
        self._by_pod: dict[str, Nomination] = {}
        self._evicted: set[str] = set()

    def of(self, pod_uid: str) -> Nomination | None:
        """The pod's nomination; None if it has none."""
        return self._by_pod.get(pod_uid)

    def add(self, nomination: Nomination) -> list[PodReference]:
        """Add the nomination in place of the pod's earlier one. Returns the pods of lower priority that lose
        theirs: their node was chosen for this pod as if they had none. They keep them if it wants no more than
        before."""
        former = self._by_pod.get(nomination.pod.uid)
        self._by_pod[nomination.pod.uid] = nomination
        if former is not None and not nomination.keeps(former):
            self._ended(former)
        if former is not None and former.covers(nomination):
            return []
        losers = [one for one in self._on(nomination) if one.priority < nomination.priority]
        for one in losers:
            self.end(one.pod.uid)
        return [one.pod for one in losers]

    def _on(self, nomination: Nomination) -> list[Nomination]:
        return [
            one
            for one in self._by_pod.values()
            if one is not nomination and one.node == nomination.node and one.requests.keys() & nomination.requests
        ]

    def end(self, pod_uid: str) -> None:
        """End the pod's nomination. Idempotent."""
        nomination = self._by_pod.pop(pod_uid, None)
        if nomination is not None:
            self._ended(nomination)

    def others_on(self, pod_uid: str, priority: int, node: str) -> list[Nomination]:
        """The other pods' nominations for the node that a pod of that priority has to leave room for."""
        return [
            one
            for one in self._by_pod.values()
            if one.node == node and one.pod.uid != pod_uid and one.priority >= priority
        ]

    def in_namespace(self, namespace: str, pod_uid: str, priority: int) -> list[Nomination]:
        """The other pods' nominations that come first within the namespace's limits."""
        others = (one for one in self._by_pod.values() if one.pod.uid != pod_uid and one.priority >= priority)
        return [one for one in others if one.pod.namespace == namespace]

    def shared(self, uid: str, priority: int | None, drivers: Collection[str]) -> dict[str, int]:
        """The nodes where these drivers have to leave enough for other nominated pods when they allocate for the
        pod, or the claim without a pod, of that UID; each with the lowest priority of the others that count."""
        least = LEAST if priority is None else priority
        found = {
            one.node: least
            for one in self._by_pod.values()
            if one.pod.uid != uid and one.priority >= least and not one.requests.keys().isdisjoint(drivers)
        }
        if (own := self._by_pod.get(uid)) is not None:
            found[own.node] = own.priority + 1
        return found

    def has_claim(self, pod_uid: str, claim_uid: str) -> bool:
        """Whether the pod was nominated with the claim."""
        own = self._by_pod.get(pod_uid)
        return own is not None and claim_uid in own.claims

    def is_claim_kept(self, claim_uid: str, pod_uid: str, priority: int) -> bool:
        """Whether a pod of that priority has to leave the claim to another one, which was nominated with it."""
        others = (one for one in self._by_pod.values() if one.pod.uid != pod_uid and one.priority >= priority)
        return any(claim_uid in one.claims for one in others)

    def evicted(self, pod_uids: Iterable[str]) -> None:
        """Note that the API server accepted the eviction of these pods; the informer may show it later."""
        self._evicted.update(pod_uids)

    def is_evicted(self, pod_uid: str) -> bool:
        """Whether the pod was evicted by this process, and is not gone yet."""
        return pod_uid in self._evicted

    def pod_gone(self, pod_uid: str) -> None:
        """Handle the event that the pod is gone: its nomination ends, and it is no evicted pod any more."""
        self._evicted.discard(pod_uid)
        self.end(pod_uid)
