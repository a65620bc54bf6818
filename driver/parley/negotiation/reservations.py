"""Room of a node that is reserved for the users of claims: how much is unused, and which pods it excludes. Pure.

The requests of a claim's users count against its reservation first, so that a node has to have the larger of
the two, never the sum. Amounts are in thousandths by resource name; `pods` are pod slots.

A reservation may yield to pods that don't use its claim (borrowers). They take what no user takes, and never more
than is reserved; when they end, it is reserved again. The requests of users that wait for the node are left for
these: so users come before further borrowers, and after borrowers that have the reserved room already.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from parley.api.wording import listed
from parley.negotiation.requests import Amounts

PODS = "pods"

A_POD: Amounts = {PODS: 1000}
"""The pod slot that one pod takes on its node."""

_GI = 1000 * 1024**3
_MI = 1000 * 1024**2
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


@dataclass(frozen=True, slots=True)
class Reservation:
    """The amounts that a claim, by UID and as "namespace/name", reserves on a node, and the UIDs of its users.

    `yields_to` are UIDs of other pods that may take from it, `awaited` are the requests of users that wait for the
    node. `new`: the reservation is about to be made.
    """

    uid: str
    claim: str
    amounts: Amounts
    users: frozenset[str]
    new: bool = False
    yields_to: frozenset[str] = frozenset()
    awaited: Amounts = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The claim's namespace."""
        return self.claim.partition("/")[0]


def unused(reservations: Sequence[Reservation], pods: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    """The unused amounts of each reservation, by its claim's UID; `pods` has what each pod there uses, by UID.

    A pod that uses several claims takes from one after the other; pods that can take from few claims come first,
    and borrowers after users. No amount is taken twice, and when a pod ends, at most as much is freed as it used.
    """
    left = {reservation.uid: dict(reservation.amounts) for reservation in reservations}
    borrowers = frozenset[str]().union(*(reservation.yields_to for reservation in reservations))
    order, claims = _in_order(reservations), defaultdict[str, dict[str, None]](dict)
    own = ((pod, one) for one in order for pod in one.users)
    for pod, reservation in chain(own, ((pod, one) for one in order for pod in one.yields_to)):
        claims[pod][reservation.uid] = None
    names = frozenset(chain.from_iterable(reservation.amounts for reservation in reservations))
    for pod in sorted(pods, key=lambda uid: (uid in borrowers, len(claims[uid]), uid)):
        _take(left, claims[pod], {name: pods[pod][name] for name in names if name in pods[pod]})
    return left


def with_reserved(requested: Amounts, reserved: Iterable[Amounts]) -> dict[str, int]:
    """The amounts that a pod and its claims' reservations take of a node together."""
    total = Counter[str]()
    for amounts in reserved:
        total.update(amounts)
    return {name: max(requested.get(name, 0), total[name]) for name in {*requested, *total}}


def _in_order(reservations: Iterable[Reservation]) -> Sequence[Reservation]:
    return sorted(reservations, key=lambda reservation: reservation.uid)


def _sources(order: Sequence[Reservation], pod: str) -> list[str]:
    """The UIDs of the claims from which the pod takes: first those that it uses, then those that yield to it."""
    own = [one.uid for one in order if pod in one.users]
    return own + [one.uid for one in order if pod in one.yields_to and pod not in one.users]


def _unused_after(
    reservations: Sequence[Reservation], pods: Mapping[str, Amounts], requester: str
) -> Mapping[str, Mapping[str, int]]:
    """The unused amounts after the asking pod, which is among `pods`, has taken its part: a borrower comes after
    all others, and takes nothing that users wait for."""
    if not any(requester in one.yields_to for one in reservations):
        return unused(reservations, pods)
    left = unused(reservations, {uid: amounts for uid, amounts in pods.items() if uid != requester})
    open_to_it = {
        one.uid: dict(left[one.uid]) if requester in one.users else _unawaited(left[one.uid], one)
        for one in reservations
    }
    before = {uid: dict(amounts) for uid, amounts in open_to_it.items()}
    _take(open_to_it, _sources(_in_order(reservations), requester), pods[requester])
    return {
        uid: {name: amount - before[uid][name] + open_to_it[uid][name] for name, amount in amounts.items()}
        for uid, amounts in left.items()
    }


def _unawaited(left: Amounts, reservation: Reservation) -> dict[str, int]:
    """The amounts left beyond those that users wait for."""
    return {name: max(amount - reservation.awaited.get(name, 0), 0) for name, amount in left.items()}


def _take(left: Mapping[str, dict[str, int]], claims: Iterable[str], amounts: Amounts) -> dict[str, int]:
    """Takes the amounts from what is left of the claims, by UID, one after the other; returns what is lacking."""
    lacking = {name: amount for name, amount in amounts.items() if amount > 0}
    for claim in claims:
        if not lacking:
            break
        for name, amount in left[claim].items():  # pods may request hundreds of resources, claims reserve few
            if amount > 0 and name in lacking:
                taken = min(lacking[name], amount)
                left[claim][name] -= taken
                lacking[name] -= taken
                if not lacking[name]:
                    del lacking[name]
    return lacking


@dataclass(frozen=True, slots=True)
class Handover:
    """The amounts `left` of each reservation, by its claim's UID, after waiting pods have taken their part; and
    the UIDs of the waiting pods that are `served`: they get all that they request."""

    left: Mapping[str, Amounts]
    served: Sequence[str]


def hand_over(
    reservations: Sequence[Reservation], pods: Mapping[str, Amounts], waiting: Mapping[str, Amounts], free: Amounts
) -> Handover:
    """Lets pods that wait for the node take from the reservations beside `pods`, which are on it, in the order of
    `waiting`. They take what their claims lack from what is `free` and not reserved. A waiting pod that isn't
    served takes nothing from a claim that has yielded: amounts that borrowers give back stay reserved."""
    left = unused(reservations, pods)
    yielding = {one.uid for one in reservations if not one.yields_to.isdisjoint((*pods, *waiting))}
    spare = {name: amount - sum(each.get(name, 0) for each in left.values()) for name, amount in free.items()}
    served, order = [], _in_order(reservations)
    for pod, asked in waiting.items():
        sources = _sources(order, pod)
        before = {uid: dict(left[uid]) for uid in sources if uid in yielding}
        lacking = _take(left, sources, asked)
        if all(amount <= spare.get(name, 0) for name, amount in lacking.items()):
            served.append(pod)
            spare |= {name: spare[name] - amount for name, amount in lacking.items()}
        else:
            left |= before
    return Handover(left, served)


def is_ample(asked: Amounts, free: Amounts, reserved: Sequence[Amounts], new: Sequence[Amounts]) -> bool:
    """Whether a node has room for `asked` and for `new` reservations even if nothing of `reserved` were in use:
    then reservations exclude no pod there, and nobody needs to compute what is unused."""
    total = Counter[str](asked)
    for amounts in (*reserved, *new):
        total.update(amounts)
    return all(total[name] <= free.get(name, 0) for name in {*asked, *chain.from_iterable(new)})


def reservation_shortage(
    asked: Amounts,
    free: Amounts,
    reservations: Sequence[Reservation],
    pods: Mapping[str, Amounts],
    named: Callable[[Reservation], str],
    requester: str = "",
) -> str:
    """Why a node does not have what is asked for beside what is reserved there, "" if it has, and "" where
    everything that is reserved is used.

    `free` is what no pod uses, the asking pod left out; it is among `pods`, as in `unused`. `named` returns the
    name of a reservation's claim for the message. `requester` is the asking pod's UID, if it is not bound yet.
    """
    left = _unused_after(reservations, pods, requester)
    new = {name for one in reservations if one.new for name in one.amounts}
    for name in sorted({*asked, *new}):
        kept = {one.uid: left[one.uid].get(name, 0) for one in reservations}
        if (total := sum(kept.values())) and asked.get(name, 0) + total > free.get(name, 0):
            return _message(name, [(one, kept[one.uid]) for one in reservations if kept[one.uid]], named)
    return ""


def _message(name: str, kept: Sequence[tuple[Reservation, int]], named: Callable[[Reservation], str]) -> str:
    wanted, others = Counter[str](), Counter[str]()
    for one, amount in kept:
        (wanted if one.new else others)[named(one)] += one.amounts[name] if one.new else amount
    lacking = "no pod slots left" if name == PODS else f"too little {name} left"
    to_reserve = listed((f"{amount_of(name, amount)} for {whom}" for whom, amount in wanted.items()), 2)
    reserved = listed(
        (f"{amount_of(name, amount)} {_are(name, amount)} reserved for {whom}" for whom, amount in others.items()),
        3,
    )
    return lacking + (f" to reserve {to_reserve}" if wanted else "") + (f": {reserved}" if others else "")


def amount_of(name: str, thousandths: int) -> str:
    """An amount with its unit, for messages: "2 cpu", "1.5Gi memory", "3 pod slots"."""
    if name == PODS:
        return f"{-(-thousandths // 1000)} pod slot{'' if thousandths <= 1000 else 's'}"
    if name.startswith(_IN_BYTES):
        size = f"{thousandths / _GI:.3g}Gi" if thousandths >= _GI else f"{thousandths / _MI:.3g}Mi"
        return f"{size} {name}"
    return f"{thousandths // 1000} {name}" if thousandths % 1000 == 0 else f"{thousandths}m {name}"


def _are(name: str, thousandths: int) -> str:
    return "is" if thousandths == 1000 or name.startswith(_IN_BYTES) else "are"
