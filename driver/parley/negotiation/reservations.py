"""Room of a node that is reserved for the users of claims: how much of it is unused, and whom it keeps out. Pure.

What the users of a claim request counts against its reservation first, so that a node has to have the larger of
the two, never the sum. Amounts are in thousandths by resource name; `pods` are pod slots.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parley.api.wording import listed
from parley.negotiation.requests import Amounts

PODS = "pods"

_GI = 1000 * 1024**3
_MI = 1000 * 1024**2
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a claim, by UID and as "namespace/name", has reserved on a node, and the UIDs of the pods that use it.

    `new`: it is about to be made.
    """

    uid: str
    claim: str
    amounts: Amounts
    users: frozenset[str]
    new: bool = False

    @property
    def namespace(self) -> str:
        """The claim's."""
        return self.claim.partition("/")[0]


def unused(reservations: Sequence[Reservation], pods: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    """What of each reservation, by its claim's UID, no pod uses; `pods` has what each pod there uses, by UID.

    A pod that uses several claims takes from one after the other; pods that can take from few come first. Nothing
    is taken twice, and when a pod goes, at most as much more is left as it used.
    """
    left = {one.uid: dict(one.amounts) for one in reservations}
    order = sorted(reservations, key=lambda one: one.uid)
    claims = {pod: [one.uid for one in order if pod in one.users] for pod in pods}
    for pod in sorted(pods, key=lambda uid: (len(claims[uid]), uid)):
        _take(left, claims[pod], pods[pod])
    return left


def _take(left: Mapping[str, dict[str, int]], claims: Sequence[str], amounts: Amounts) -> dict[str, int]:
    """Take the amounts from what is left of the claims, by UID, one after the other. What these don't have."""
    lacking: dict[str, int] = {}
    for name, amount in amounts.items():
        wanted = amount
        for claim in claims:
            taken = min(wanted, left[claim].get(name, 0))
            if taken > 0:
                left[claim][name] -= taken
                wanted -= taken
        if wanted > 0:
            lacking[name] = wanted
    return lacking


@dataclass(frozen=True, slots=True)
class Handover:
    """What is `left` of each reservation, by its claim's UID, when waiting pods have taken their part; and the
    UIDs of those pods that are `served`: they find all that they request."""

    left: Mapping[str, Amounts]
    served: Sequence[str]


def hand_over(
    reservations: Sequence[Reservation], pods: Mapping[str, Amounts], waiting: Mapping[str, Amounts], free: Amounts
) -> Handover:
    """Let pods that wait for the node take from the reservations beside `pods`, which are on it: first come, first
    served, in the order of `waiting`. What their claims don't have they take from what is `free`, as far as nobody
    has reserved it."""
    left = unused(reservations, pods)
    spare = {name: amount - sum(one.get(name, 0) for one in left.values()) for name, amount in free.items()}
    order = sorted(reservations, key=lambda one: one.uid)
    served = []
    for pod, asked in waiting.items():
        lacking = _take(left, [one.uid for one in order if pod in one.users], asked)
        if all(amount <= spare.get(name, 0) for name, amount in lacking.items()):
            served.append(pod)
            spare |= {name: spare[name] - amount for name, amount in lacking.items()}
    return Handover(left, served)


def crowded(
    asked: Amounts,
    free: Amounts,
    reservations: Sequence[Reservation],
    pods: Mapping[str, Amounts],
    named: Callable[[Reservation], str],
) -> str:
    """Why a node does not have what is asked for beside what is reserved there, "" if it has.

    `free` is what no pod uses, the one that asks left out; it is among `pods`, as in `unused`. `named` is how the
    claim of a reservation is called. "" where everything that is reserved is used.
    """
    left = unused(reservations, pods)
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
    """As people write it: "2 cpu", "1.5Gi memory", "3 pod slots"."""
    if name == PODS:
        return f"{-(-thousandths // 1000)} pod slot{'' if thousandths <= 1000 else 's'}"
    if name.startswith(_IN_BYTES):
        size = f"{thousandths / _GI:.3g}Gi" if thousandths >= _GI else f"{thousandths / _MI:.3g}Mi"
        return f"{size} {name}"
    return f"{thousandths // 1000} {name}" if thousandths % 1000 == 0 else f"{thousandths}m {name}"


def _are(name: str, thousandths: int) -> str:
    return "is" if thousandths == 1000 or name.startswith(_IN_BYTES) else "are"
