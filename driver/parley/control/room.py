"""Whether a node has room for a pod, or for a new reservation, beside what is reserved there for users of claims.

The one place where the ledger's reservations meet what pods use. Whoever judges a node asks here: candidates, the
extender, and once more what allocates, in the moment in which it is put into the ledger. Nothing is decided here.

A reservation may yield to classes (`Reserve.yields_to`). A pod that has a claim of one of them is its guest:

- It is judged as if what neither users nor guests use were free, less what users that wait for a node request:
  users come before further guests. Several guests come in the order in which all pods come.
- It has its room from the moment in which its claims are in the ledger, allocated on the node, until it ends or
  gives them up. From then on its requests count against the reservation, at most for all that is reserved.
- A user that finds guests in its room waits like any pod on a full node, with a reason that names their classes
  (`taken_by_guests`). Nobody is evicted for it. What guests give up stays reserved, and goes to it first.
- Reservation pods (`hold: Nominated`) give way to a guest as to a user, once something is allocated for it on that
  node alone, and hold the room again when it has ended.
- Only what pods request is yielded. What a claim of such a class reserves itself needs room of its own.

All of it follows from the records of allocations, which have the classes, so a new leader continues it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.wording import listed
from parley.control.caches.entries import claims_named, evaluated
from parley.control.decision.demand import Reserving
from parley.control.holding import Holding
from parley.control.objects.mirror import asked as asked_by
from parley.control.objects.pod import reference
from parley.control.state import State
from parley.negotiation.requests import Amounts, requested
from parley.negotiation.reservations import (
    A_POD,
    PODS,
    Reservation,
    amount_of,
    crowded,
    hand_over,
    is_ample,
    unused,
)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for room: a pod, or the claim of a namespace that no pod names yet.

    `claims` are those that the pod names, `classes` those of all its claims. `bound`: it has its own room already.
    `discreet`: messages don't name claims of other namespaces.
    """

    namespace: str
    uid: str = ""
    amounts: Amounts = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    bound: bool = False
    discreet: bool = True

    @staticmethod
    def of(state: State, pod: Pod, requests: Iterable[tuple[str, int]], *, discreet: bool = True) -> "Asker":
        """The pod with its requests, in thousandths."""
        return Asker(
            pod.metadata.namespace,
            pod.metadata.uid,
            {**dict(requests), **A_POD},
            frozenset(claims_named(pod)),
            frozenset(_classes(state, pod)) if state.ledger.reserves else frozenset(),
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


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is to change on a node: pods with these UIDs are `gone`, and others have come that take `beside`."""

    gone: Collection[str] = ()
    beside: Sequence[Amounts] = ()


def lacking(
    state: State, node: str, asker: Asker, new: Sequence[Reserving] = (), foreseen: Foreseen | None = None
) -> str:
    """Why the node does not have room for who asks, and for `new` reservations, beside what is reserved there, or
    would not if what is `foreseen` had happened.

    "" if it has, or if nothing is reserved.
    """
    held = state.ledger.reserving(node)
    if not held and not new:
        return ""
    asked: Amounts = {} if asker.bound else asker.amounts
    foreseen = foreseen or Foreseen()
    # of one that asks and is not bound, what it may be counted for already is free
    free = _free(state, node, (*foreseen.gone, *(() if asker.bound else (asker.uid,))))
    for amounts in foreseen.beside:
        taken = {**amounts, PODS: max(amounts.get(PODS, 0), A_POD[PODS])}
        free = {name: amount - taken.get(name, 0) for name, amount in free.items()}
    if is_ample(asked, free, [*map(reserved, held)], [one.amounts for one in new]):
        return ""
    there = _There(state, node)
    reservations = [
        *(_reservation(state, holding, asker, there) for holding in held),
        *(Reservation(one.uid, one.claim, one.amounts, frozenset([asker.uid]), new=True) for one in new),
    ]
    users = chain.from_iterable((*_uids(there.users(one)), *there.guests(one)) for one in held)
    used = _used(state, users, _names(reservations))
    if asker.uid:
        used[asker.uid] = asker.amounts
    return crowded(asked, free, reservations, used, asker.name, "" if asker.bound else asker.uid)


def _coming(state: State, holding: Holding) -> Sequence[Pod]:
    """The pods that name the holding's claim and have no node yet."""
    return state.cluster.pods_awaiting_node((holding.namespace, holding.claim)) if holding.named else ()


def _uids(pods: Iterable[Pod]) -> Iterator[str]:
    return (pod.metadata.uid for pod in pods)


def _names(reservations: Iterable[Reservation]) -> frozenset[str]:
    """The resources that are reserved."""
    return frozenset(chain.from_iterable(one.amounts for one in reservations))


def _used(state: State, uids: Iterable[str], names: Collection[str]) -> dict[str, Amounts]:
    """What the pods use of these resources of their node, by UID: they may use thousands of others."""
    shares = {uid: state.cluster.usage.share(uid) for uid in uids}
    return {
        uid: {**{name: share.amounts[name] for name in names if name in share.amounts}, **A_POD}
        for uid, share in shares.items()
        if share is not None
    }


class _There:
    """The pods on a node that use its holdings, and those to which these yield, for one look at the node. Each is
    found once, because a tenant may have hundreds of claims there that yield, and of such classes."""

    def __init__(self, state: State, node: str) -> None:
        self._state = state
        self._node = node
        self._of_classes: dict[tuple[str, ...], Mapping[str, Pod]] = {}
        self._users: dict[str, Sequence[Pod]] = {}

    def users(self, holding: Holding) -> Sequence[Pod]:
        """The pods on the holding's node that name its claim: also those that others put there, and that nobody
        has looked at yet."""
        if not holding.named:
            return ()
        if holding.uid not in self._users:
            key = (holding.namespace, holding.claim)
            self._users[holding.uid] = self._state.cluster.pods_naming_on(key, holding.node)
        return self._users[holding.uid]

    def guests(self, holding: Holding) -> Mapping[str, Pod]:
        """The pods to which the holding yields and that count for its node, by UID. They don't name its claim."""
        classes = holding.yields_to
        if not classes:
            return {}
        if classes not in self._of_classes:
            self._of_classes[classes] = self._found(classes)
        own = frozenset(_uids(self.users(holding)))
        return {uid: pod for uid, pod in self._of_classes[classes].items() if uid not in own}

    def _found(self, classes: Collection[str]) -> Mapping[str, Pod]:
        ledger, cluster, node = self._state.ledger, self._state.cluster, self._node
        users = (user for one in ledger.on(node) if one.class_name in classes for user in one.pods.values())
        known = (cluster.pod((user.namespace, user.name)) for user in dict.fromkeys(users))
        # what can be used on other nodes, too, makes a pod a guest where it is bound
        bound = (
            pod
            for pod in cluster.pods_on(node)
            if any(other.class_name in classes for other in ledger.of_pod(reference(pod)))
        )
        found = {pod.metadata.uid: pod for pod in chain(known, bound) if pod is not None}
        return {uid: pod for uid, pod in found.items() if cluster.usage.node_of(uid) == node}


def _classes(state: State, pod: Pod) -> Iterator[str]:
    """Those of the pod's claims; of a template's, before its claim is generated."""
    cluster, namespace = state.cluster, pod.metadata.namespace
    for entry in evaluated(pod):
        if entry.resource_claim_name:
            claim = cluster.claim((namespace, entry.resource_claim_name))
            if claim is not None:
                yield claim.spec.resource_class_name
            continue
        mirror = cluster.generated.of_entry(pod, entry.name)
        if mirror is None:
            template = cluster.template_mirror((namespace, entry.resource_claim_template_name or ""))
            mirror = BuiltinClaim(spec=template.spec.spec) if template is not None else None
        request = asked_by(mirror) if mirror is not None else None
        if request is not None:
            yield request.class_name


def taken_by_guests(state: State, node: str, asker: Asker) -> str:
    """What of the room reserved on the node for claims of the pod others have, to which it yields: as a clause, ""
    if nothing."""
    told, there = [], _There(state, node)
    for holding in state.ledger.reserving(node):
        if asker.uses(holding) and (guests := there.guests(holding)):
            own = Reservation(holding.uid, holding.path, reserved(holding), frozenset(guests))
            left = unused([own], _used(state, guests, own.amounts))[holding.uid]
            taken = {name: amount - left[name] for name, amount in own.amounts.items() if amount > left[name]}
            whom = f"pods of class {listed(holding.yields_to, 3)}, to which it yields,"
            used = listed(starmap(amount_of, taken.items()))
            told.append(f"of what is reserved for claim {holding.path}, {whom} use {used}")
    return "; ".join(told)


@dataclass(frozen=True, slots=True)
class LeftToHold:
    """What of each reservation is to be held, by its claim's UID, and the pods without a node that find what they
    request: users and guests of claims whose room reservation pods hold."""

    amounts: Mapping[str, Amounts]
    served: Sequence[Pod]


def left_to_hold(state: State, node: str, is_kept_out: Callable[[Pod], bool]) -> LeftToHold:
    """What of the node's reservations is to be held: what neither pods on the node use nor users and guests that
    are about to be placed there, if they would be kept out of it themselves. Guests have their room already; of
    users the one that came first takes first."""
    placed = set[str]()
    waiting: dict[str, Pod] = {}
    first: dict[str, Pod] = {}
    let_in = set[str]()
    reservations, found = [], _There(state, node)
    for holding in state.ledger.reserving(node):
        there = {*_uids(pod for pod in found.users(holding) if pod.spec.node_name)}
        coming = {pod.metadata.uid: pod for pod in _coming(state, holding) if is_kept_out(pod)}
        waiting |= coming
        guests = found.guests(holding)
        came = {uid for uid, pod in guests.items() if pod.spec.node_name}
        come = {uid: pod for uid, pod in guests.items() if uid not in came and is_kept_out(pod)}
        placed |= {*there, *came}
        first |= come
        if holding.is_nominated:
            let_in |= {*coming, *come}
        reservations.append(
            Reservation(
                holding.uid,
                holding.path,
                reserved(holding),
                frozenset([*there, *coming]),
                yields_to=frozenset([*came, *come]),
            )
        )
    in_turn = [*first.values(), *sorted(waiting.values(), key=_arrival)]
    asked: dict[str, Amounts] = {pod.metadata.uid: {**requested(pod), **A_POD} for pod in in_turn}
    used = _used(state, placed, _names(reservations))
    given = hand_over(reservations, used, asked, _free(state, node, asked))
    served = let_in.intersection(given.served)
    return LeftToHold(given.left, [pod for pod in in_turn if pod.metadata.uid in served])


def _arrival(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _awaited(state: State, holding: Holding) -> Amounts:
    """What pods request that name the holding's claim and have no node yet, of what it reserves."""
    key = (holding.namespace, holding.claim)
    return state.cluster.awaited.of(key, reserved(holding).keys()) if holding.named else {}


def _reservation(state: State, holding: Holding, asker: Asker, there: _There) -> Reservation:
    guests = there.guests(holding)
    is_own = bool(asker.uid) and asker.uses(holding)
    is_guest = bool(asker.uid) and not is_own and not asker.classes.isdisjoint(holding.yields_to)
    return Reservation(
        holding.uid,
        holding.path,
        reserved(holding),
        frozenset([*([asker.uid] if is_own else ()), *_uids(there.users(holding))]),
        yields_to=frozenset([*guests, *([asker.uid] if is_guest else ())]),
        awaited=_awaited(state, holding) if is_guest and asker.uid not in guests else {},
    )


def _free(state: State, node: str, asking: Iterable[str]) -> Amounts:
    """What no pod uses but those with these UIDs."""
    allocatable = state.cluster.allocatable(node)
    used, pods = state.cluster.usage.without(node, asking, allocatable)
    free = {name: amount - used[name] for name, amount in allocatable.items()}
    return {**free, PODS: free.get(PODS, 0) - 1000 * pods}


def reserved(holding: Holding) -> Mapping[str, int]:
    """What the holding reserves on its node, in thousandths."""
    reserve = holding.allocation.reserve
    return reserve.thousandths() if reserve is not None else {}
