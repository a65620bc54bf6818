"""Creates the named claims that templates make for pods (`spec.sharedBy`), when the first pod names one.

Whether, and what, is decided in `control.claims.on_demand`. Two pods may come at once: the API server takes one.
"""

from collections.abc import Sequence

from parley.api.builtin import Pod
from parley.api.resources import CLAIMS
from parley.control.claims.podclaims import PodClaim
from parley.kube.client import AlreadyExists, Client
from parley.kube.queue import Requeue
from parley.scheduler.pods import Pods, now


class ClaimsOnDemand:
    """Creates what pods name and templates make, with a growing pause for each pod: an owner that does not exist
    takes each claim with it at once."""

    def __init__(self, client: Client, pods: Pods) -> None:
        self._client = client
        self._pods = pods

    async def create(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Create what the pod's claims lack; returns whether that was tried now. Raises what a client raises."""
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
                pass  # another pod's, or a user's, and not in the cache yet; its arrival wakes the pod
        return True

    def again(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        """When the pod is wanted again, if a claim is missing still."""
        if pod.spec.scheduling_gates or all(claim.to_create is None for claim in claims):
            return None
        return Requeue(self._pods.attempt(pod).creations.left(now()))
