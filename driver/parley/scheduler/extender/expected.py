"""A pod's claims as the extender judges them, including generated claims that do not exist yet.

Without the DynamicResources plugin a scheduler does not wait until a pod's claims exist. A claim that is being
generated is judged by its template. The bind then waits for the claim itself, which is decisive.
"""

from parley.api.builtin import BuiltinClaim, ObjectMeta, Pod
from parley.control.claims.checks import first_problem
from parley.control.claims.gathering import gather, with_class
from parley.control.claims.generated import GENERATED, GeneratedClaim
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.class_request import class_request
from parley.control.state import State


def expected_claims(state: State, pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims that are Parley's, in the order of the pod's spec."""
    return tuple(_expected(state, pod, claim) or claim for claim in gather(state, pod))


def _expected(state: State, pod: Pod, claim: PodClaim) -> PodClaim | None:
    """The claim that will be generated for the entry, if all objects that it depends on exist."""
    cluster, meta = state.cluster, pod.metadata
    if claim.problem is None or not claim.problem.transient:
        return None
    if cluster.generated.of_entry(pod, claim.entry) is not None:
        return None
    named = {entry.name: entry.resource_claim_template_name for entry in pod.spec.resource_claims}
    template = cluster.template_mirror((meta.namespace, named.get(claim.entry) or ""))
    if template is None:
        return None
    own = ObjectMeta(name=f"{meta.name}-{claim.entry}", namespace=meta.namespace, uid=f"{meta.uid}/{claim.entry}")
    mirror = BuiltinClaim(metadata=own, spec=template.spec.spec)
    request = class_request(mirror)
    if request is None:
        return None
    class_ = cluster.class_(request.class_name)
    facts = GeneratedClaim(pod, claim.entry, mirror, request, class_, stand_in=None, holding=None, former=None)
    if (problem := first_problem(GENERATED, facts)) is not None:
        return PodClaim(claim.entry, "", problem=problem)
    return with_class(
        state, PodClaim(claim.entry, "", mirror, class_request=request, subject=facts.subject), class_
    )
