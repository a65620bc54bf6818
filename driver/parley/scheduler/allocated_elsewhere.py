"""Claims that standalone drivers allocated elsewhere than on the node selected for a pod, which count as a
failure.

The pod, or its other claims, may be unable to use such a claim's nodes. To go on with it would end in releasing
everything and asking again at once, for ever.
"""

from collections.abc import Sequence

from parley.api.builtin import Pod
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding
from parley.negotiation.nowhere import where
from parley.scheduler.attempts import Attempt
from parley.scheduler.standalone import Failure


def allocated_elsewhere(pod: Pod, attempt: Attempt | None, claims: Sequence[PodClaim]) -> Failure | None:
    """The failure on the selected node, if a claim that standalone drivers were to allocate there can't be used on
    it. Ignores claims recorded by a driver that was asked earlier, when their class named it."""
    session = attempt.standalone.session if attempt is not None else None
    if attempt is None or session is None or session.selection is None:
        return None
    node, asked = session.selection.node, {claim.entry: claim.driver for claim in attempt.standalone.claims}
    holdings = [(claim.holding, asked.get(claim.entry)) for claim in claims if claim.holding is not None]
    found = [held for held, driver in holdings if held.standalone and held.driver == driver]
    strays = [held for held in found if not _is_there(held, node, pod)]
    if not strays:
        return None
    causes = "; ".join(f"driver {held.driver}: claim {held.path} is {where(held.nodes)}" for held in strays)
    return Failure(node, f"could not allocate on node {node}: {causes}", ())


def _is_there(holding: Holding, node: str, pod: Pod) -> bool:
    """Whether the claim can be used on the node. A node that loses labels keeps the pods that are bound to it."""
    return holding.may_run_on(node) if pod.spec.node_name else holding.usable_on(node)
