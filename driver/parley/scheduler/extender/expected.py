"""A pod's claims as this door sees them: also those that are about to be made.

Without the DynamicResources plugin a scheduler does not wait until a pod's claims exist. A claim that is being
made is judged by its template; what counts in the end is the claim, which the bind waits for.
"""

from collections.abc import Mapping

from parley.api.builtin import BuiltinClaim, ObjectMeta, Pod
from parley.control.cluster import Cluster
from parley.control.gathering import gather, with_class
from parley.control.mirror import asked
from parley.control.podclaims import PodClaim
from parley.control.state import State


def expected_claims(state: State, pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims that are Parley's, in the pod's order."""
    found = gather(state, pod)
    return tuple(_expected(state.cluster, state.drivers, pod, claim) or claim for claim in found)


def _expected(cluster: Cluster, drivers: Mapping[str, object], pod: Pod, claim: PodClaim) -> PodClaim | None:
    """The claim that will be made for the entry, if all that it depends on is there."""
    if claim.problem is None or not claim.problem.transient or cluster.generated(pod, claim.entry) is not None:
        return None
    named = {entry.name: entry.resource_claim_template_name for entry in pod.spec.resource_claims}
    template = cluster.template_mirror((pod.metadata.namespace, named.get(claim.entry) or ""))
    if template is None:
        return None
    meta = ObjectMeta(namespace=pod.metadata.namespace, uid=f"{pod.metadata.uid}/{claim.entry}")
    mirror = BuiltinClaim(metadata=meta, spec=template.spec.spec)
    request = asked(mirror)
    if request is None:
        return None
    return with_class(cluster, drivers, PodClaim(claim.entry, "", mirror, asked=request))
