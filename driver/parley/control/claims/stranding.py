"""Named claims whose only node takes no pods: the condition `Stranded`, which says what is wrong with the node.

It is about the node alone, whatever pods there are: whether a pod that names the claim tolerates that, or finds no
room on a node that is well, is decided with the pod (`decision.stranded`).
"""

from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.names import CONDITION_STRANDED
from parley.control.ledger import Holding
from parley.control.state import State
from parley.negotiation.stranded import Obstacle, remedy, unavailable

_ANEW = "delete the claim to begin anew elsewhere"


def stranded_condition(state: State, claim: ResourceClaim) -> ConditionUpdate | None:
    """The claim's condition `Stranded`; None if it has none."""
    holding = state.ledger.get(claim.metadata.uid)
    found = obstacle_of(state, holding) if holding is not None else None
    if holding is None or found is None:
        return None
    message = (
        f"node {holding.only_node}, where the claim is allocated, is {found.text} and takes no pods. "
        f"To help: {remedy(found.cause, _ANEW)}"
    )
    return ConditionUpdate(CONDITION_STRANDED, True, found.cause.value, message)


def obstacle_of(state: State, holding: Holding) -> Obstacle | None:
    """What is wrong with the only node of a named claim that a driver in this process allocated."""
    if not holding.named or holding.standalone or holding.only_node is None:
        return None
    return unavailable(state.cluster.node(holding.only_node))
