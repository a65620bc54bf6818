"""Whether a node has room for a pod, or for a new reservation, beside what is reserved there for users of claims.

The one place where the ledger's reservations meet what pods use. Whoever judges a node asks here: candidates, the
extender, and once more what allocates, in the moment in which it is put into the ledger. Nothing is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parley.api.builtin import Pod
from parley.control.decision.demand import Reserving
from parley.control.ledger import Holding
from parley.control.state import State
from parley.negotiation.requests import Amounts
from parley.negotiation.reservations import PODS, Reservation, crowded

_POD: Amounts = {PODS: 1000}


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for room: a pod, or the claim of a namespace that no pod names yet.

    `claims` are those that the pod names. `bound`: it has its own room already. `discreet`: messages don't name
    claims of other namespaces.
    """

    namespace: str
    uid: str = ""
    amounts: Amounts = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    bound: bool = False
    discreet: bool = True

    @staticmethod
    def of(pod: Pod, requests: Iterable[tuple[str, int]], *, discreet: bool = True) -> "Asker":
        """The pod with its requests, in thousandths."""
        return Asker(
            pod.metadata.namespace,
            pod.metadata.uid,
            {**dict(requests), **_POD},
            frozenset(
                entry.resource_claim_name for entry in pod.spec.resource_claims if entry.resource_claim_name
            ),
            bool(pod.spec.node_name),
            discreet,
        )

    def uses(self, holding: Holding) -> bool:
        """Whether it is a pod that names the claim."""
        return holding.named and holding.namespace == self.namespace and holding.claim in self.claims

    def name(self, reservation: Reservation) -> str:
        """How its messages call a reservation's claim."""
        if self.discreet and reservation.namespace != self.namespace:
            return "claims of other namespaces"
        return f"claim {reservation.claim}"


def lacking(state: State, node: str, asker: Asker, new: Sequence[Reserving] = ()) -> str:
    """Why the node does not have room for who asks, and for `new` reservations, beside what is reserved there.

    "" if it has, or if nothing is reserved.
    """
    held = state.ledger.reserving(node)
    if not held and not new:
        return ""
    usage = state.cluster.usage
    pods: dict[str, Amounts] = {
        uid: {**share.amounts, **_POD}
        for holding in held
        for uid in holding.pods
        if (share := usage.share(uid)) is not None and share.node == node
    }
    if asker.uid:
        pods[asker.uid] = asker.amounts
    reservations = [
        *(_reservation(holding, asker) for holding in held),
        *(Reservation(one.uid, one.claim, one.amounts, frozenset([asker.uid]), new=True) for one in new),
    ]
    used, count = usage.without(node, () if asker.bound else (asker.uid,))
    free = {name: amount - used.get(name, 0) for name, amount in state.cluster.allocatable(node).items()}
    free[PODS] = free.get(PODS, 0) - 1000 * count
    return crowded({} if asker.bound else asker.amounts, free, reservations, pods, asker.name)


def _reservation(holding: Holding, asker: Asker) -> Reservation:
    users = frozenset(holding.pods) | ({asker.uid} if asker.uid and asker.uses(holding) else set[str]())
    return Reservation(holding.uid, holding.path, reserved(holding), users)


def reserved(holding: Holding) -> Mapping[str, int]:
    """What the holding reserves on its node, in thousandths."""
    reserve = holding.allocation.reserve
    return reserve.thousandths() if reserve is not None else {}
