"""Where what pods give up is kept for other pods, as one pod finds it (`control.nominations`)."""

from collections.abc import Iterable

from parley.control.decision.demand import Demand
from parley.control.nominations import KEPT, Nomination
from parley.control.state import State
from parley.sdk.together import together


def kept_nodes(state: State, uid: str, priority: int | None, demand: Demand) -> dict[str, str]:
    """The nodes where nothing may be allocated for the pod, or the claim without a pod, of that UID, each with the
    reason.

    A pod that is nominated for a node itself, beside others of higher priority, is allocated nothing there before
    there is enough for all of them, as with kube-scheduler's nominated pods.
    """
    kept = state.nominations.closed(uid, priority, frozenset(demand.drivers.values()))
    own = state.nominations.of(uid)
    if own is not None and (higher := beside(state, uid, own.priority + 1, own.node)):
        drivers = (name for name in demand.requests if state.drivers[name].foresees)
        if not all(is_enough(state, name, demand, own.node, higher) for name in drivers):
            kept[own.node] = KEPT
    return kept


def beside(state: State, uid: str, priority: int, node: str) -> list[Nomination]:
    """What is kept on the node for others of at least that priority, and not allocated for them yet."""
    others = state.nominations.beside(uid, priority, node)
    return [one for one in others if not state.ledger.of_pod(one.pod)]


def is_enough(
    state: State, name: str, demand: Demand, node: str, others: Iterable[Nomination], freed: Iterable[str] = ()
) -> bool:
    """Whether the driver has enough on the node for the demand and for others, if the claims with the UIDs `freed`
    were free. Raises DriverFault."""
    theirs = (one.requests[name] for one in others if name in one.requests)
    return state.drivers[name].viable_without(together(demand.requests[name], theirs), node, frozenset(freed))
