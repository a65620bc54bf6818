"""How pods and built-in claims refer to each other. Pure."""

from parley.api.builtin import BuiltinClaim, Pod


def claim_names(pod: Pod) -> list[str]:
    """Names of the pod's claims, as far as they are known: generated ones are once its status names them."""
    generated = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (claim.resource_claim_name or generated.get(claim.name) for claim in pod.spec.resource_claims)
    return [name for name in names if name]


MOST_USERS = 256


def may_use(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether Kubernetes takes the claim for the pod's: a generated one belongs to it, and of one that it names
    the owner is not looked at (k8s.io/dynamic-resource-allocation/resourceclaim, `Name` and `IsForPod`)."""
    if any(entry.resource_claim_name == claim.metadata.name for entry in pod.spec.resource_claims):
        return True
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)


def is_reserved(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether the pod has reserved the claim."""
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def reserved_by_others(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether anybody but the pod has reserved the claim."""
    return any(consumer.uid != pod.metadata.uid for consumer in claim.status.reserved_for)
