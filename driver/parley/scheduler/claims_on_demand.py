"""Creates named claims from templates with `spec.sharedBy` when the first pod names one.

Whether and what to create is decided in `control.claims.on_demand`. Of two creations the API server takes one.
"""

from collections.abc import Sequence

from parley.api.builtin import Pod
from parley.api.resources import CLAIMS
from parley.control.claims.podclaims import PodClaim
from parley.kube.client import AlreadyExists, Client
from parley.kube.queue import Requeue
from parley.scheduler.pods import Pods, now


class ClaimsOnDemand:
    """Creates claims on demand, with a growing pause for each pod: claims whose owner does not exist are garbage
    collected at once, again and again."""

    def __init__(self, client: Client, pods: Pods) -> None:
        self._client = client
        self._pods = pods

    async def create(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Create the pod's missing claims; returns whether that was tried now. Raises what a client raises."""
        wanted = {claim.to_create.claim: claim.to_create for claim in claims if claim.to_create is not None}
        if not wanted or pod.spec.scheduling_gates:
            return False
        attempt = self._pods.attempt(pod)
        if attempt.creations.left(now()):
            return False
        attempt.creations.begin(now())
        for demand in wanted.values():
            try:
                await self._client.create(CLAIMS, demand.body(), pod.metadata.namespace)
            except AlreadyExists:
                pass  # for another pod, or by a user, and not in the cache yet; its event wakes the pod
        return True

    def requeue(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """When to requeue the pod, if a claim is still missing."""
        if pod.spec.scheduling_gates or all(claim.to_create is None for claim in claims):
            return None
        return Requeue(self._pods.attempt(pod).creations.left(now()))
