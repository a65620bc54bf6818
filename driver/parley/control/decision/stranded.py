"""Whether a pod can't be placed because of where its named claims are. Pure."""

from collections.abc import Sequence

from parley.control.claims.podclaims import PodClaim
from parley.control.decision.eligible import EligibleNodes
from parley.control.holding import Holding
from parley.negotiation.nowhere import in_common
from parley.negotiation.stranded import StrandedClaims


def stranded(claims: Sequence[PodClaim], nodes: EligibleNodes) -> StrandedClaims | None:
    """The named claims that keep the pod to nodes where it can't go; None if something else is in its way.

    `claims` are all of the pod's, `nodes` those in question for it. Claims that have no node in common keep it
    away by themselves, whatever becomes of the nodes.
    """
    tied = [holding for holding in map(_tied, claims) if holding is not None]
    common = in_common(holding.nodes for holding in tied) or ()
    obstacles = {node: nodes.obstacle(node) for node in sorted(common) if nodes.misfit(node)}
    found = {node: obstacle for node, obstacle in obstacles.items() if obstacle is not None}
    if not common or len(found) < len(common):
        return None
    return StrandedClaims([holding.path for holding in tied], found, used=any(holding.pods for holding in tied))


def _tied(claim: PodClaim) -> Holding | None:
    """What the named claim holds, if it is kept to certain nodes. Of nodes that have some labels more may come."""
    holding = claim.holding
    return holding if holding is not None and holding.named and isinstance(holding.nodes, tuple) else None
