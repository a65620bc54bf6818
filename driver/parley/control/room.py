"""Whether a node has room for a pod, or for a new reservation, beside what is reserved there for users of claims.

The only place where the ledger's reservations are compared with what pods use. Everything that evaluates a node
asks here: candidates, the extender, and once more the allocator, just before it adds a holding. Nothing is decided
here.

A reservation may yield to classes (`Reserve.yields_to`). A pod that has a claim of one of them is its borrower:

- It is judged as if what neither users nor borrowers use were free, less what users that wait for a node request:
  users come before further borrowers. Several borrowers come in the order in which all pods come.
- It has its room from the moment in which its claims are in the ledger, allocated on the node, until it ends or
  gives them up. From then on its requests count against the reservation, at most for all that is reserved.
- A user that finds borrowers in its room waits like any pod on a full node, with a reason that names their
  classes (`taken_by_borrowers`). Nobody is evicted for it. What borrowers give up stays reserved, and goes to it
  first.
- Reservation pods (`hold: Nominated`) give way to a borrower as to a user, once something is allocated for it on
  that node alone, and hold the room again when it has ended.
- Only what pods request is yielded. What a claim of such a class reserves itself needs room of its own.

All of it follows from the records of allocations, which have the classes, so a new leader continues it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap
from typing import Final

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.wording import listed
from parley.control.caches.entries import claims_named, evaluated
from parley.control.caches.indexes import awaiting_node
from parley.control.decision.demand import Reserving
from parley.control.holding import Holding
from parley.control.objects.class_request import class_request
from parley.control.objects.pod import reference
from parley.control.state import State
from parley.kube.cache import Key
from parley.negotiation.requests import Amounts, requested
from parley.negotiation.reservations import (
    A_POD,
    PODS,
    Reservation,
    amount_of,
    hand_over,
    is_ample,
    reservation_shortage,
    unused,
)

MOST_TAKES: Final = 10_000
"""The most claims on a node from which the waiting pods of one namespace take their room, counted for each pod: a
tenant may have a thousand pods that name hundreds of claims, and everything else waits meanwhile. The pods that
arrived later get theirs when earlier ones are placed or gone."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks for room: a pod, or a namespace's claim without a pod.

    `claims` are the names of the pod's named claims, `classes` the classes of all its claims. `bound`: the pod has
    its own room already. `hide_other_namespaces`: messages don't name claims of other namespaces.
    """

    namespace: str
    uid: str = ""
    amounts: Amounts = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    bound: bool = False
    hide_other_namespaces: bool = True

    @staticmethod
    def of(
        state: State, pod: Pod, requests: Iterable[tuple[str, int]], *, hide_other_namespaces: bool = True
    ) -> "Requester":
        """The pod with its requests, in thousandths."""
        return Requester(
            pod.metadata.namespace,
            pod.metadata.uid,
            {**dict(requests), **A_POD},
            frozenset(claims_named(pod)),
            frozenset(_classes(state, pod)) if state.ledger.reserves else frozenset(),
            bool(pod.spec.node_name),
            hide_other_namespaces,
        )

    def uses(self, holding: Holding) -> bool:
        """Whether the requester is a pod that names the holding's claim."""
        return holding.named and holding.namespace == self.namespace and holding.claim in self.claims

    def name(self, reservation: Reservation) -> str:
        """A reservation's claim in messages to the requester."""
        if self.hide_other_namespaces and reservation.namespace != self.namespace:
            return "claims of other namespaces"
        return f"claim {reservation.claim}"


@dataclass(frozen=True, slots=True)
class AssumedChanges:
    """Changes assumed on a node: the pods with the UIDs `gone` have left it, others now use `added`."""

    gone: Collection[str] = ()
    added: Sequence[Amounts] = ()


def room_shortage(
    state: State,
    node: str,
    requester: Requester,
    new: Sequence[Reserving] = (),
    changes: AssumedChanges | None = None,
) -> str:
    """Why the node lacks room for the requester, and for `new` reservations, beside what is reserved there, or
    would lack it after these `changes`.

    "" if it has room, or if nothing is reserved.
    """
    held = state.ledger.reserving(node)
    if not held and not new:
        return ""
    asked: Amounts = {} if requester.bound else requester.amounts
    changes = changes or AssumedChanges()
    # a requester that is not bound may be counted for the node already, which does not take its own room
    free = _free(state, node, (*changes.gone, *(() if requester.bound else (requester.uid,))))
    for amounts in changes.added:
        taken = {**amounts, PODS: max(amounts.get(PODS, 0), A_POD[PODS])}
        free = {name: amount - taken.get(name, 0) for name, amount in free.items()}
    if is_ample(asked, free, [*map(reserved, held)], [one.amounts for one in new]):
        return ""
    pods = _PodsOnNode(state, node)
    reservations = [
        *(_reservation(state, holding, requester, pods) for holding in held),
        *(_new_reservation(state, one, requester, node) for one in new),
    ]
    counted = frozenset[str]().union(*(one.users | one.yields_to for one in reservations))
    used = _used(state, counted, _resource_names(reservations))
    if requester.uid:
        used[requester.uid] = requester.amounts
    short = reservation_shortage(
        asked, free, reservations, used, requester.name, "" if requester.bound else requester.uid
    )
    return short or _taken_by_unbound(state, node, requester, asked, free, _resource_names(reservations))


def _taken_by_unbound(
    state: State, node: str, requester: Requester, asked: Amounts, free: Amounts, names: Collection[str]
) -> str:
    """The message if pods that have their claims and are not seen bound yet use up one of these resources, which
    are reserved on the node: the requester's scheduler may not know of them. "" if they don't."""
    if not state.cluster.usage.any_assumed(node, but=requester.uid):
        return ""
    lacking = (name for name in sorted(names) if asked.get(name, 0) > max(free.get(name, 0), 0))
    if (name := next(lacking, None)) is None:
        return ""
    left = "no pod slots" if name == PODS else f"too little {name}"
    return f"{left} left: pods that are about to be bound there have what is reserved"


def _waiting_users(
    state: State, held: Iterable[Holding], is_kept_out: Callable[[Pod], bool]
) -> Mapping[str, Mapping[str, Pod]]:
    """The pods that name a holding's claim, have no node yet and are kept out: by the holding's UID, and by their
    own. Of a namespace not more than `MOST_TAKES` allows: those that arrived first."""
    found: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
    for claims in _by_namespace(held).values():
        awaiting = chain.from_iterable(map(state.cluster.pods_awaiting_node, claims))
        pods = filter(is_kept_out, {id(pod): pod for pod in awaiting}.values())
        for pod in sorted(pods, key=_arrival)[: max(MOST_TAKES // len(claims), 1)]:
            for claim in awaiting_node(pod):
                for uid in claims.get(claim, ()):
                    found[uid][pod.metadata.uid] = pod
    return found


def _by_namespace(held: Iterable[Holding]) -> Mapping[str, Mapping[Key, Sequence[str]]]:
    """The UIDs of holdings of named claims, by namespace and claim."""
    found: defaultdict[str, defaultdict[Key, list[str]]] = defaultdict(lambda: defaultdict(list))
    for holding in held:
        if holding.named:
            found[holding.namespace][holding.namespace, holding.claim].append(holding.uid)
    return found


def _uids(pods: Iterable[Pod]) -> Iterator[str]:
    return (pod.metadata.uid for pod in pods)


def _resource_names(reservations: Iterable[Reservation]) -> frozenset[str]:
    """The names of the resources that are reserved."""
    return frozenset(chain.from_iterable(one.amounts for one in reservations))


def _used(state: State, uids: Iterable[str], names: Collection[str]) -> dict[str, Amounts]:
    """The pods' use of these resources of their node, by UID. Only of these: pods may use thousands of others."""
    shares = {uid: state.cluster.usage.share(uid) for uid in uids}
    return {
        uid: {**{name: share.amounts[name] for name in names if name in share.amounts}, **A_POD}
        for uid, share in shares.items()
        if share is not None
    }


class _PodsOnNode:
    """The users and borrowers of a node's holdings, for one evaluation of the node. Each is looked up once,
    because a tenant may have hundreds of claims there that yield, and of classes that they yield to."""

    def __init__(self, state: State, node: str) -> None:
        self._state = state
        self._node = node
        self._of_classes: dict[tuple[str, ...], Mapping[str, Pod]] = {}
        self._users: dict[str, Sequence[Pod]] = {}

    def users(self, holding: Holding) -> Sequence[Pod]:
        """The pods on the holding's node that name its claim, including those that others bound there and that
        were not reconciled yet."""
        if not holding.named:
            return ()
        if holding.uid not in self._users:
            key = (holding.namespace, holding.claim)
            self._users[holding.uid] = self._state.cluster.pods_naming_on(key, holding.node)
        return self._users[holding.uid]

    def borrowers(self, holding: Holding) -> Mapping[str, Pod]:
        """The pods to which the holding yields and that count for its node, by UID. They don't name its claim."""
        classes = holding.yields_to
        if not classes:
            return {}
        if classes not in self._of_classes:
            self._of_classes[classes] = self._with_classes(classes)
        own = frozenset(_uids(self.users(holding)))
        if own.isdisjoint(self._of_classes[classes]):
            return self._of_classes[classes]
        return {uid: pod for uid, pod in self._of_classes[classes].items() if uid not in own}

    def _with_classes(self, classes: Collection[str]) -> Mapping[str, Pod]:
        ledger, cluster, node = self._state.ledger, self._state.cluster, self._node
        users = (user for one in ledger.on(node) if one.class_name in classes for user in one.pods.values())
        known = (cluster.pod((user.namespace, user.name)) for user in dict.fromkeys(users))
        # with a claim that can be used on several nodes, a pod is a borrower on the node that it is bound to
        bound = (
            pod
            for pod in cluster.pods_on(node)
            if any(other.class_name in classes for other in ledger.of_pod(reference(pod)))
        )
        found = {pod.metadata.uid: pod for pod in chain(known, bound) if pod is not None}
        return {uid: pod for uid, pod in found.items() if cluster.usage.node_of(uid) == node}


def _classes(state: State, pod: Pod) -> Iterator[str]:
    """The classes of the pod's claims; a template's, as long as its claim is not generated."""
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
        request = class_request(mirror) if mirror is not None else None
        if request is not None:
            yield request.class_name


def taken_by_borrowers(state: State, node: str, requester: Requester) -> str:
    """The room reserved on the node for the pod's claims that borrowers use, as a clause of a message; "" if
    none. Users have theirs first, and no borrower uses the room of two claims at once."""
    held = state.ledger.reserving(node)
    own, pods = [holding for holding in held if requester.uses(holding)], _PodsOnNode(state, node)
    if not any(map(pods.borrowers, own)):
        return ""
    reservations = [_reservation(state, holding, requester, pods) for holding in held]
    names = _resource_names(reservations)
    users = _used(state, frozenset[str]().union(*(one.users for one in reservations)), names)
    borrowers = _used(state, frozenset[str]().union(*(one.yields_to for one in reservations)), names)
    before, left = unused(reservations, users), unused(reservations, {**borrowers, **users})
    clauses = []
    for holding in own:
        available = before[holding.uid].items()
        taken = {name: much for name, amount in available if (much := amount - left[holding.uid][name])}
        if taken:
            whom = f"pods of class {listed(holding.yields_to, 3)}, to which it yields,"
            used = listed(starmap(amount_of, taken.items()))
            clauses.append(f"of what is reserved for claim {holding.path}, {whom} use {used}")
    return "; ".join(clauses)


@dataclass(frozen=True, slots=True)
class RoomToHold:
    """The part of each reservation that reservation pods are to hold, by the claim's UID, and the pods `served`:
    users and borrowers of such claims that have no node and find the room that they request."""

    amounts: Mapping[str, Amounts]
    served: Sequence[Pod]


def room_to_hold(state: State, node: str, is_kept_out: Callable[[Pod], bool]) -> RoomToHold:
    """The part of the node's reservations that is to be held: not used by pods on the node, nor needed by users
    and borrowers that are about to be placed there and that reservation pods would keep out. Borrowers have their
    room already; users get theirs in the order of their arrival."""
    placed = set[str]()
    unplaced_users: dict[str, Pod] = {}
    unplaced_borrowers: dict[str, Pod] = {}
    to_admit = set[str]()
    reservations, pods = [], _PodsOnNode(state, node)
    held = state.ledger.reserving(node)
    waiting = _waiting_users(state, held, is_kept_out)
    for holding in held:
        users = {*_uids(pod for pod in pods.users(holding) if pod.spec.node_name)}
        new_users = waiting.get(holding.uid, {})
        unplaced_users |= new_users
        all_borrowers = pods.borrowers(holding)
        borrowers = {uid for uid, pod in all_borrowers.items() if pod.spec.node_name}
        new_borrowers = {
            uid: pod for uid, pod in all_borrowers.items() if uid not in borrowers and is_kept_out(pod)
        }
        placed |= {*users, *borrowers}
        unplaced_borrowers |= new_borrowers
        if holding.is_nominated:
            to_admit |= {*new_users, *new_borrowers}
        reservations.append(
            Reservation(
                holding.uid,
                holding.path,
                reserved(holding),
                frozenset([*users, *new_users]),
                yields_to=frozenset([*borrowers, *new_borrowers]),
            )
        )
    in_turn = [*unplaced_borrowers.values(), *sorted(unplaced_users.values(), key=_arrival)]
    asked: dict[str, Amounts] = {pod.metadata.uid: {**requested(pod), **A_POD} for pod in in_turn}
    used = _used(state, placed, _resource_names(reservations))
    given = hand_over(reservations, used, asked, _free(state, node, asked))
    served = to_admit.intersection(given.served)
    return RoomToHold(given.left, [pod for pod in in_turn if pod.metadata.uid in served])


def _arrival(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _awaited(state: State, holding: Holding) -> Amounts:
    """The requests, for what the holding reserves, of pods that name its claim and have no node yet."""
    key = (holding.namespace, holding.claim)
    return state.cluster.awaited.of(key, reserved(holding).keys()) if holding.named else {}


def _reservation(state: State, holding: Holding, requester: Requester, pods: _PodsOnNode) -> Reservation:
    borrowers = pods.borrowers(holding)
    is_own = bool(requester.uid) and requester.uses(holding)
    is_borrower = bool(requester.uid) and not is_own and not requester.classes.isdisjoint(holding.yields_to)
    return Reservation(
        holding.uid,
        holding.path,
        reserved(holding),
        frozenset([*([requester.uid] if is_own else ()), *_uids(pods.users(holding))]),
        yields_to=frozenset([*borrowers, *([requester.uid] if is_borrower else ())]),
        awaited=_awaited(state, holding) if is_borrower and requester.uid not in borrowers else {},
    )


def _new_reservation(state: State, new: Reserving, requester: Requester, node: str) -> Reservation:
    """The reservation that is about to be made. Pods that name its claim may be bound to the node already."""
    namespace, _, name = new.claim.partition("/")
    there = state.cluster.pods_naming_on((namespace, name), node)
    return Reservation(new.uid, new.claim, new.amounts, frozenset([requester.uid, *_uids(there)]), new=True)


def _free(state: State, node: str, asking: Iterable[str]) -> Amounts:
    """The node's resources that no pod uses, apart from the pods with these UIDs."""
    allocatable = state.cluster.allocatable(node)
    used, pods = state.cluster.usage.without(node, asking, allocatable)
    free = {name: amount - used[name] for name, amount in allocatable.items()}
    return {**free, PODS: free.get(PODS, 0) - 1000 * pods}


def reserved(holding: Holding) -> Mapping[str, int]:
    """The amounts that the holding reserves on its node, in thousandths."""
    reserve = holding.allocation.reserve
    return reserve.thousandths() if reserve is not None else {}
