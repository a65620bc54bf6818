"""Claims of a pod that none of its containers uses, so that no container gets their devices. Pure.

Claims of classes without a node part are left out: they give nothing to containers.
"""

from collections.abc import Sequence

from parley.api.builtin import Pod
from parley.api.wording import noun_for
from parley.control.claims.podclaims import PodClaim


def unused(pod: Pod, claims: Sequence[PodClaim]) -> list[str]:
    """The pod's entries for those of the claims that none of its containers names."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    used = {claim.name for container in containers for claim in container.resources.claims}
    return [claim.entry for claim in claims if claim.entry not in used and _is_handed_over(claim)]


def _is_handed_over(claim: PodClaim) -> bool:
    if claim.holding is not None:
        return claim.holding.node_part
    return claim.class_ is not None and claim.class_.node_part == "Required"


def message(entries: Sequence[str]) -> str:
    """The message about the pod's unused claims, with the remedy."""
    claims = f"{noun_for(len(entries), 'claim')} {', '.join(entries)}"
    they, them = ("it holds", "it") if len(entries) == 1 else ("they hold", "them")
    return (
        f"no container uses {claims}, so no container gets what {they}: recreate the pod with {them} in"
        " resources.claims of a container"
    )
