"""Whether a node has room for a pod, or for a new reservation, beside what is reserved there for users of claims.

The one place where the ledger's reservations meet what pods use. Whoever judges a node asks here: candidates, the
extender, and once more what allocates, in the moment in which it is put into the ledger. Nothing is decided here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from parley.api.builtin import Pod
from parley.control.caches.cluster import over
from parley.control.caches.usage import Share
from parley.control.decision.demand import Reserving
from parley.control.ledger import Holding
from parley.control.state import State
from parley.negotiation.requests import Amounts, requested
from parley.negotiation.reservations import PODS, Handover, Reservation, crowded, hand_over

A_POD: Amounts = {PODS: 1000}
"""The slot that a pod takes on its node."""


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
            {**dict(requests), **A_POD},
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
    pods = {uid: share for holding in held for uid, share in _users(state, holding) if uid != asker.uid}
    used: dict[str, Amounts] = {uid: {**share.amounts, **A_POD} for uid, share in pods.items()}
    if asker.uid:
        used[asker.uid] = asker.amounts
    reservations = [
        *(_reservation(state, holding, asker) for holding in held),
        *(Reservation(one.uid, one.claim, one.amounts, frozenset([asker.uid]), new=True) for one in new),
    ]
    asked: Amounts = {} if asker.bound else asker.amounts
    # of one that asks and is not bound, what it may be counted for already is free
    free = _free(state, node, () if asker.bound else (asker.uid,))
    return crowded(asked, free, reservations, used, asker.name)


def _users(state: State, holding: Holding) -> Iterator[tuple[str, Share]]:
    """The pods on the holding's node that name its claim, and what they use: also those that others put there, and
    that nobody has looked at yet."""
    for pod in _naming(state, holding):
        share = state.cluster.usage.share(pod.metadata.uid)
        if share is not None and share.node == holding.node:
            yield pod.metadata.uid, share


def left_to_hold(state: State, node: str, is_kept_out: Callable[[Pod], bool]) -> Handover:
    """What of the node's reservations is to be held: what neither pods on the node use nor users that are about to
    be placed there, if they would be kept out of it themselves. The pod that came first takes first."""
    placed: dict[str, Amounts] = {}
    waiting: dict[str, Pod] = {}
    reservations = []
    for holding in state.ledger.reserving(node):
        users = [pod for pod in _naming(state, holding) if not over(pod)]
        there = {pod.metadata.uid for pod in users if pod.spec.node_name == node}
        coming = {pod.metadata.uid: pod for pod in users if _awaits_node(pod) and is_kept_out(pod)}
        placed |= {uid: {**share.amounts, **A_POD} for uid in there if (share := state.cluster.usage.share(uid))}
        waiting |= coming
        takers = frozenset([*there, *coming])
        reservations.append(Reservation(holding.uid, holding.path, reserved(holding), takers))
    in_turn = sorted(waiting.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    asked: dict[str, Amounts] = {pod.metadata.uid: {**requested(pod), **A_POD} for pod in in_turn}
    return hand_over(reservations, placed, asked, _free(state, node, asked))


def _awaits_node(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.spec.scheduling_gates


def _naming(state: State, holding: Holding) -> Sequence[Pod]:
    return state.cluster.pods_naming((holding.namespace, holding.claim)) if holding.named else ()


def _reservation(state: State, holding: Holding, asker: Asker) -> Reservation:
    own = [asker.uid] if asker.uid and asker.uses(holding) else []
    users = frozenset([*own, *(uid for uid, _ in _users(state, holding))])
    return Reservation(holding.uid, holding.path, reserved(holding), users)


def _free(state: State, node: str, asking: Iterable[str]) -> Amounts:
    """What no pod uses but those with these UIDs."""
    used, pods = state.cluster.usage.without(node, asking)
    free = {name: amount - used.get(name, 0) for name, amount in state.cluster.allocatable(node).items()}
    return {**free, PODS: free.get(PODS, 0) - 1000 * pods}


def reserved(holding: Holding) -> Mapping[str, int]:
    """What the holding reserves on its node, in thousandths."""
    reserve = holding.allocation.reserve
    return reserve.thousandths() if reserve is not None else {}
