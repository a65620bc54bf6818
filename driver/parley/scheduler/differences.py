"""Decides whether a change of an object is relevant: whether anything differs that decisions depend on. Pure.

Users may change labels and annotations of their claims at any time, while hundreds of pods use or wait for a
claim. Only the label and the annotation that mark a claim as generated for a pod are relevant.
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
    """Whether anything changed that makes a node a candidate or not; heartbeats do not count."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
    )
