"""Whether a pod can't be placed because of where its named claims are. Pure."""

from collections.abc import Sequence

from parley.control.claims.podclaims import PodClaim
from parley.control.decision.eligible import EligibleNodes
from parley.control.holding import Holding
from parley.negotiation.nowhere import in_common
from parley.negotiation.stranded import StrandedClaims


def stranded(claims: Sequence[PodClaim], nodes: EligibleNodes) -> StrandedClaims | None:
    """The named claims that tie the pod to nodes where it can't be placed; None if it is not placed for other
    reasons.

    `claims` are all of the pod's, `nodes` those to choose from. None also if its claims have no node in common:
    that alone prevents the pod from being placed, whatever the nodes' state.
    """
    tied = [holding for holding in map(_tied, claims) if holding is not None]
    common = in_common(holding.nodes for holding in tied) or ()
    obstacles = {node: nodes.obstacle(node) for node in sorted(common) if nodes.misfit(node)}
    found = {node: obstacle for node, obstacle in obstacles.items() if obstacle is not None}
    if not common or len(found) < len(common):
        return None
    return StrandedClaims([holding.path for holding in tied], found, used=any(holding.pods for holding in tied))


def _tied(claim: PodClaim) -> Holding | None:
    """The named claim's holding, if it is tied to certain nodes by name: by labels, more may match later."""
    holding = claim.holding
    return holding if holding is not None and holding.named and isinstance(holding.nodes, tuple) else None
