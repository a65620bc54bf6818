"""References between pods and built-in claims. No I/O."""

from parley.api.builtin import BuiltinClaim, Pod


def claim_names(pod: Pod) -> list[str]:
    """The names of the pod's claims; generated ones only once the pod's status lists them."""
    generated = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (claim.resource_claim_name or generated.get(claim.name) for claim in pod.spec.resource_claims)
    return [name for name in names if name]


MOST_USERS = 256


def is_for_pod(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether Kubernetes considers the claim the pod's: one that the pod names, whatever its owner, or one that is
    owned by the pod (k8s.io/dynamic-resource-allocation/resourceclaim, `Name` and `IsForPod`)."""
    if any(entry.resource_claim_name == claim.metadata.name for entry in pod.spec.resource_claims):
        return True
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)


def is_reserved(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod."""
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def reserved_by_others(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for any other pod."""
    return any(consumer.uid != pod.metadata.uid for consumer in claim.status.reserved_for)
