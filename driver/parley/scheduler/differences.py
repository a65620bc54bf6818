"""Whether a change of an object is relevant: something that decisions depend on differs. Pure.

Users change labels and annotations of their claims as often as they like, and hundreds of pods may use or wait for
one of them. Of these only those count by which a claim is known as a pod's.
"""

from parley.api.builtin import BuiltinClaim, Node
from parley.api.models import ResourceClaim
from parley.api.names import GENERATED_LABEL, POD_CLAIM_NAME_ANNOTATION

Claim = ResourceClaim | BuiltinClaim


def claim_differs(old: Claim, new: Claim) -> bool:
    """Whether anything changed that a decision about the claim, or about a pod that names it, depends on."""
    return _of_claim(old) != _of_claim(new)


def _of_claim(claim: Claim) -> tuple[object, ...]:
    meta = claim.metadata
    known_as = meta.labels.get(GENERATED_LABEL), meta.annotations.get(POD_CLAIM_NAME_ANNOTATION)
    life = meta.uid, meta.deletion_timestamp, meta.finalizers, meta.owner_references
    return *life, known_as, claim.status, claim.spec


def node_differs(old: Node, new: Node) -> bool:
    """Whether anything changed that decides about candidates; heartbeats do not count."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
    )
