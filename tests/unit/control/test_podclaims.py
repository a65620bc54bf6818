"""Where one of a pod's claims stands, from what the ledger holds and what the cache shows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import msgspec
import pytest
from tests.unit.control.builders import (
    NOW,
    TOKENS,
    a_claim,
    a_class,
    a_holding,
    a_pod,
    generated_for,
    mirror_of,
    user,
)

from parley.api.builtin import BuiltinClaim, Pod
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Written
from parley.control.objects.mirror import (
    allocation_body,
    consumer,
    declined_body,
    fulfilled_body,
    offer_body,
)
from parley.negotiation.states import ClaimState
from parley.sdk import Allocation

CLAIM = a_claim()
WAITING, BOUND, ELSEWHERE = a_pod(), a_pod(node="node-1"), a_pod(node="node-2")
ALLOCATION = Allocation(data={"count": 1})


def shows(*users: str, deleted: bool = False) -> BuiltinClaim:
    """A mirror that shows an allocation on node-1, reserved for these pods."""
    body = allocation_body(mirror_of(CLAIM), TOKENS, ALLOCATION, ["node-1"], NOW, node_part=True)
    reserved = [consumer(user(name)) for name in users]
    return mirror_of(CLAIM, status={"allocation": body, "reservedFor": reserved}, deleted=deleted)


def offers(*users: str, ended: list[dict[str, Any]] | None = None) -> BuiltinClaim:
    """A mirror that offers two nodes to the scheduler."""
    body = offer_body(mirror_of(CLAIM), TOKENS, ["node-1", "node-2"], NOW)
    reserved = [consumer(user(name)) for name in users]
    return mirror_of(CLAIM, status={"allocation": body, "reservedFor": reserved, "devices": ended or []})


FOUND = fulfilled_body(TOKENS, ALLOCATION, "node-1", NOW)
DECLINED = declined_body(TOKENS, "no tokens are left", NOW)
EMPTY = mirror_of(CLAIM)
S = ClaimState


@dataclass
class Case:
    """A situation, in words, and how the claim stands in it."""

    told: str
    mirror: BuiltinClaim
    holding: Holding | None
    state: ClaimState
    pod: Pod = field(default_factory=lambda: WAITING)


CASES = [
    Case("nothing is allocated", EMPTY, None, S.PENDING),
    Case("nodes are offered", offers(), None, S.OFFERED),
    Case("the offer was declined, the scheduler has yet to clear it", offers(ended=DECLINED), None, S.OFFERED),
    Case("the offer was answered by nobody that we remember", offers(ended=FOUND), None, S.UNKNOWN),
    Case("an allocation that nobody remembers", shows("p"), None, S.UNKNOWN),
    Case("another pod uses it", shows("q"), a_holding("c", "q", written=Written.YES), S.JOINABLE),
    Case("allocated, and not written yet", EMPTY, a_holding("c", "p"), S.UNWRITTEN),
    Case("the cache shows the allocation, reserved for another", shows("q"), a_holding("c", "p"), S.UNWRITTEN),
    Case("recorded and reserved", shows("p"), a_holding("c", "p", written=Written.YES), S.ALLOCATED),
    Case("somebody cleared it", EMPTY, a_holding("c", "p", written=Written.YES), S.CLEARED),
    Case("a write of it may still arrive", shows("p"), a_holding("c", "p", written=Written.MAYBE), S.UNWRITTEN),
    Case("one of its record may", shows("p"), a_holding("c", "p", record_written=Written.MAYBE), S.UNWRITTEN),
    Case("bound where it is", shows("p"), a_holding("c", "p", written=Written.YES), S.ALLOCATED, BOUND),
    Case("bound elsewhere", shows("p"), a_holding("c", "p", written=Written.YES), S.MISPLACED, ELSEWHERE),
    Case(
        "bound elsewhere, while another pod uses it",
        shows("p", "q"),
        a_holding("c", "p", "q", written=Written.YES),
        S.ALLOCATED,
        ELSEWHERE,
    ),
    Case(
        "bound elsewhere, to be used everywhere",
        shows("p"),
        a_holding("c", "p", written=Written.YES, allocation=Allocation(available_on=None)),
        S.ALLOCATED,
        ELSEWHERE,
    ),
    Case("bound, deleted before it was let in", shows(deleted=True), a_holding("c", "p"), S.MISPLACED, BOUND),
    Case(
        "bound and let in, then the mirror was deleted",
        shows("p", deleted=True),
        a_holding("c", "p", written=Written.YES),
        S.ALLOCATED,
        BOUND,
    ),
    Case("an answered offer is written", offers("p", ended=FOUND), a_holding("c", "p", offered=True), S.ALLOCATED),
    Case("an answered offer is not written", offers("p"), a_holding("c", "p", offered=True), S.UNWRITTEN),
    Case("the scheduler gave up the offered node", offers(), a_holding("c", "p", offered=True), S.MISPLACED),
    Case("offered again while held for a node", offers("p"), a_holding("c", "p"), S.MISPLACED),
    Case("held for an offer, allocated outright", shows("p"), a_holding("c", "p", offered=True), S.MISPLACED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.told.replace(" ", "-"))
def test_where_the_claim_stands(case: Case) -> None:
    assert PodClaim("c", "c", case.mirror, CLAIM, holding=case.holding).state(case.pod) is case.state


HOLDINGS: list[Callable[[], Holding | None]] = [
    lambda: None,
    lambda: a_holding("c", "p", written=Written.YES),
    lambda: a_holding("c", "q"),
]


@pytest.mark.parametrize(
    ("mirror", "holding", "pod"), list(product((EMPTY, shows("p"), offers("p")), HOLDINGS, (WAITING, BOUND)))
)
def test_nothing_is_said_of_a_mirror_older_than_our_own_write(
    mirror: BuiltinClaim, holding: Callable[[], Holding | None], pod: Pod
) -> None:
    wrote = OwnWrites()
    newer = msgspec.structs.replace(mirror.metadata, resource_version="2")
    wrote.note(newer)
    claim = PodClaim("c", "c", mirror, CLAIM, holding=holding(), own_writes=wrote)
    assert claim.state(pod) is S.STALE
    shown = msgspec.structs.replace(mirror, metadata=newer)
    assert replace(claim, mirror=shown).state(pod) is not S.STALE


@pytest.mark.parametrize(("pod", "state"), [(WAITING, S.MISPLACED), (BOUND, S.CLEARED)], ids=["waiting", "bound"])
def test_a_generated_claim_that_was_made_anew_holds_nothing_for_a_pod_that_waits(
    pod: Pod, state: ClaimState
) -> None:
    anew = generated_for(pod)
    earlier = a_holding(anew.metadata.name, "p", uid="uid-earlier", named=False, written=Written.YES)
    assert PodClaim("licence", anew.metadata.name, anew, holding=earlier).state(pod) is state


def test_the_key_towards_driver_and_ledger_is_the_holdings_then_the_named_claims_then_the_generated_ones() -> None:
    generated = generated_for(WAITING)
    first = a_holding(uid="uid-of-the-first")
    assert PodClaim("e", "n", generated, holding=first).uid == "uid-of-the-first"
    assert PodClaim("e", "n", EMPTY, CLAIM).uid == CLAIM.metadata.uid
    assert PodClaim("e", "n", generated).uid == generated.metadata.uid


EXCLUSIVE, SHARED = a_class(), a_class(shareable=True)


@pytest.mark.parametrize(
    ("claim", "free"),
    [
        (PodClaim("c", "c", EMPTY, CLAIM, class_=EXCLUSIVE), True),
        (PodClaim("c", "c", EMPTY, CLAIM, class_=EXCLUSIVE, holding=a_holding("c")), True),
        (PodClaim("c", "c", EMPTY, CLAIM, class_=EXCLUSIVE, holding=a_holding("c", "p")), False),
        (PodClaim("c", "c", EMPTY, CLAIM, class_=SHARED, holding=a_holding("c")), True),
        (PodClaim("c", "c", mirror_of(CLAIM, shareable=True), CLAIM, class_=SHARED), False),
        (PodClaim("c", "c", EMPTY, CLAIM, class_=EXCLUSIVE, holding=a_holding("c", shareable=True)), False),
        (PodClaim("c", "c", generated_for(WAITING), class_=EXCLUSIVE), False),
        (PodClaim("c", "c", None, CLAIM, class_=EXCLUSIVE), False),
    ],
    ids=[
        "nothing is allocated",
        "no pod uses it",
        "a pod uses it",
        "allocated before its class became shareable",
        "shareable",
        "allocated as shareable",
        "generated",
        "without a built-in claim",
    ],
)
def test_an_exclusive_named_claim_is_free_that_no_pod_uses(claim: PodClaim, free: bool) -> None:
    assert claim.is_free is free


def test_an_offer_tells_its_driver_and_nodes_and_whether_it_ended() -> None:
    standing, declined, nothing = (PodClaim("c", "c", m, CLAIM) for m in (offers(), offers(ended=DECLINED), EMPTY))
    assert (standing.offered_by, list(standing.offered_nodes)) == (TOKENS, ["node-1", "node-2"])
    assert (standing.offer_ended, declined.offer_ended, nothing.offer_ended) == (False, True, False)
    assert (nothing.offered_by, list(nothing.offered_nodes)) == ("", [])
