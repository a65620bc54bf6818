"""Which changes of an object are news: something that decisions depend on differs. Pure.

Users change labels and annotations of their claims as often as they like, and hundreds of pods may use or wait for
one of them. By these nothing is decided.
"""

from parley.api.builtin import BuiltinClaim, Node
from parley.api.models import ResourceClaim

Claim = ResourceClaim | BuiltinClaim


def claim_differs(old: Claim, new: Claim) -> bool:
    """Whether anything changed that a decision about the claim, or about a pod that names it, depends on."""
    return _of_claim(old) != _of_claim(new)


def _of_claim(claim: Claim) -> tuple[object, ...]:
    meta = claim.metadata
    return meta.uid, meta.deletion_timestamp, meta.finalizers, meta.owner_references, claim.status, claim.spec


def node_differs(old: Node, new: Node) -> bool:
    """Whether anything changed that decides about candidates; heartbeats do not count."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
    )
