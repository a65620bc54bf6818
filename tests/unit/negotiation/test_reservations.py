"""Reserved room: never promised twice, and what users use of it is not counted twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.negotiation.requests import Amounts
from parley.negotiation.reservations import (
    Reservation,
    amount_of,
    hand_over,
    is_ample,
    reservation_shortage,
    unused,
)


def reservation(name: str, amounts: Amounts, *users: str, new: bool = False) -> Reservation:
    return Reservation(name, f"team/{name}", amounts, frozenset(users), new)


def named(one: Reservation) -> str:
    return f"claim {one.claim}"


class TestUnused:
    def test_what_no_user_uses_is_left(self) -> None:
        held = [reservation("a", {"cpu": 4000, "pods": 3000}, "p"), reservation("b", {"cpu": 1000})]
        left = unused(held, {"p": {"cpu": 1500, "memory": 7, "pods": 1000}})
        assert left == {"a": {"cpu": 2500, "pods": 2000}, "b": {"cpu": 1000}}

    def test_who_uses_more_leaves_nothing(self) -> None:
        assert unused([reservation("a", {"cpu": 4}, "p")], {"p": {"cpu": 9}}) == {"a": {"cpu": 0}}

    def test_a_pod_takes_from_one_claim_after_the_other(self) -> None:
        held = [reservation("a", {"cpu": 2}, "p"), reservation("b", {"cpu": 2}, "p")]
        assert unused(held, {"p": {"cpu": 3}}) == {"a": {"cpu": 0}, "b": {"cpu": 1}}

    def test_those_that_can_take_from_one_alone_come_first(self) -> None:
        held = [reservation("a", {"cpu": 2}, "both", "one"), reservation("b", {"cpu": 2}, "both")]
        assert unused(held, {"both": {"cpu": 2}, "one": {"cpu": 2}}) == {"a": {"cpu": 0}, "b": {"cpu": 0}}


class TestHandOver:
    def test_who_waits_takes_from_what_is_left_and_is_served_if_that_is_enough(self) -> None:
        held = [reservation("a", {"cpu": 4000, "pods": 3000}, "there", "first", "second")]
        waiting: dict[str, Amounts] = {name: {"cpu": 2000, "pods": 1000} for name in ("first", "second")}
        free = {"cpu": 3000, "pods": 2000}
        handover = hand_over(held, {"there": {"cpu": 1000, "pods": 1000}}, waiting, free)
        assert handover.left == {"a": {"cpu": 0, "pods": 0}}
        assert handover.served == ["first"]

    @pytest.mark.parametrize(("memory", "served"), [(1000, ["p"]), (999, [])])
    def test_what_is_not_reserved_has_to_be_free(self, memory: int, served: list[str]) -> None:
        held = [reservation("a", {"cpu": 4000, "pods": 1000}, "p")]
        asked = {"cpu": 1000, "memory": 1000, "pods": 1000}
        assert hand_over(held, {}, {"p": asked}, {"cpu": 4000, "memory": memory, "pods": 1000}).served == served

    def test_what_others_have_reserved_is_not_free(self) -> None:
        held = [reservation("a", {"cpu": 1000}, "p"), reservation("b", {"cpu": 1000})]
        assert hand_over(held, {}, {"p": {"cpu": 2000}}, {"cpu": 2000}).served == []
        assert hand_over(held, {}, {"p": {"cpu": 2000}}, {"cpu": 3000}).served == ["p"]

    def test_what_is_free_is_taken_once(self) -> None:
        held = [reservation("a", {"pods": 2000}, "first", "second")]
        waiting: dict[str, Amounts] = {name: {"cpu": 1000, "pods": 1000} for name in ("first", "second")}
        assert hand_over(held, {}, waiting, {"cpu": 1500, "pods": 2000}).served == ["first"]


class TestCrowded:
    @pytest.mark.parametrize(
        ("asked", "free", "told"),
        [
            ({"cpu": 1000}, {"cpu": 3000}, ""),
            ({"cpu": 1001}, {"cpu": 3000}, "too little cpu left: 2 cpu are reserved for claim team/a"),
            ({"memory": 1000}, {"cpu": 0, "memory": 1000}, ""),
            ({"pods": 1000}, {"pods": 1000}, "no pod slots left: 1 pod slot is reserved for claim team/a"),
        ],
    )
    def test_others_are_kept_out_of_what_is_unused(self, asked: Amounts, free: Amounts, told: str) -> None:
        held = [reservation("a", {"cpu": 2000, "pods": 1000})]
        assert reservation_shortage(asked, free, held, {"p": asked}, named) == told

    def test_a_user_is_not(self) -> None:
        held, asked = [reservation("a", {"cpu": 2000}, "p")], {"cpu": 2000}
        assert reservation_shortage(asked, {"cpu": 2000}, held, {"p": asked}, named) == ""

    def test_a_new_reservation_is_made_where_it_fits_beside_the_others(self) -> None:
        held = [reservation("a", {"memory": 2 * 1024**3 * 1000})]
        new = reservation("b", {"memory": 3 * 1024**3 * 1000}, "p", new=True)
        free = {"memory": 5 * 1024**3 * 1000}
        assert reservation_shortage({}, free, [*held, new], {}, named) == ""
        told = reservation_shortage({}, {"memory": free["memory"] - 1}, [*held, new], {}, named)
        assert told.startswith(
            "too little memory left to reserve 3Gi memory for claim team/b: 2Gi memory is reserved"
        )

    def test_where_nothing_is_left_of_reservations_the_scheduler_judges_alone(self) -> None:
        held = [reservation("a", {"cpu": 2000}, "user")]
        assert reservation_shortage({"cpu": 9000}, {"cpu": 0}, held, {"user": {"cpu": 2000}}, named) == ""


class TestYielding:
    """To a borrower: a pod that does not use the claim and may use what it reserves."""

    def held(self, *borrowers: str, awaited: int = 0, user: str = "") -> Reservation:
        users = frozenset([user] if user else [])
        return Reservation(
            "a", "team/a", {"cpu": 4}, users, yields_to=frozenset(borrowers), awaited={"cpu": awaited}
        )

    @pytest.mark.parametrize(
        ("asked", "free", "awaited", "told"),
        [
            (4, 4, 0, ""),
            (4, 5, 1, ""),
            (4, 4, 1, "too little cpu left: 1m cpu are reserved for claim team/a"),
            (1, 4, 3, ""),
            (2, 4, 3, "too little cpu left: 3m cpu are reserved for claim team/a"),
            (2, 4, 9, "too little cpu left: 4m cpu are reserved for claim team/a"),
            (6, 6, 0, ""),
        ],
    )
    def test_it_has_what_no_user_waits_for(self, asked: int, free: int, awaited: int, told: str) -> None:
        pods: dict[str, Amounts] = {"borrower": {"cpu": asked}}
        held = [self.held("borrower", awaited=awaited)]
        assert reservation_shortage(pods["borrower"], {"cpu": free}, held, pods, named, "borrower") == told

    def test_one_that_is_there_keeps_what_it_has_whoever_waits(self) -> None:
        held = [self.held("borrower", awaited=4)]
        assert unused(held, {"borrower": {"cpu": 3}}) == {"a": {"cpu": 1}}
        assert reservation_shortage({}, {"cpu": 1}, held, {"borrower": {"cpu": 3}}, named) == ""

    def test_it_takes_from_its_own_claim_first(self) -> None:
        held = [self.held("p"), reservation("b", {"cpu": 2}, "p")]
        assert unused(held, {"p": {"cpu": 3}}) == {"a": {"cpu": 3}, "b": {"cpu": 0}}
        assert reservation_shortage({"cpu": 3}, {"cpu": 6}, held, {"p": {"cpu": 3}}, named, "p") == ""
        assert reservation_shortage({"cpu": 3}, {"cpu": 5}, held, {"p": {"cpu": 3}}, named, "p") != ""

    def test_users_take_before_it(self) -> None:
        other = Reservation("b", "team/b", {"cpu": 4}, frozenset(), yields_to=frozenset(["borrower"]))
        held = [self.held("borrower", user="user"), other]
        assert unused(held, {"borrower": {"cpu": 4}, "user": {"cpu": 4}}) == {"a": {"cpu": 0}, "b": {"cpu": 0}}

    def test_what_comes_back_is_held_for_a_user_that_waits_for_more(self) -> None:
        held = [self.held("borrower", user="user")]
        handover = hand_over(held, {"borrower": {"cpu": 2}}, {"user": {"cpu": 4}}, {"cpu": 2})
        assert (handover.left, handover.served) == ({"a": {"cpu": 2}}, [])
        handover = hand_over(held, {}, {"user": {"cpu": 4}}, {"cpu": 4})
        assert (handover.left, handover.served) == ({"a": {"cpu": 0}}, ["user"])


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 2000, "2 cpu"),
        ("cpu", 250, "250m cpu"),
        ("memory", 1536 * 1024**2 * 1000, "1.5Gi memory"),
        ("memory", 64 * 1024**2 * 1000, "64Mi memory"),
        ("pods", 2000, "2 pod slots"),
        ("pods", 1000, "1 pod slot"),
        ("example.com/gpu", 1000, "1 example.com/gpu"),
    ],
)
def test_amounts_are_written_as_people_do(name: str, amount: int, text: str) -> None:
    assert amount_of(name, amount) == text


@dataclass
class Node:
    """A node where pods and claims come and go by the rule alone."""

    size: int
    pods: dict[str, Amounts] = field(default_factory=dict)
    claims: dict[str, Reservation] = field(default_factory=dict)

    def fits(self, asked: Amounts, reservations: list[Reservation], pods: Mapping[str, Amounts]) -> bool:
        used = sum(one["cpu"] for one in self.pods.values())
        free = {"cpu": self.size - used}
        enough = asked.get("cpu", 0) <= free["cpu"]
        return enough and not reservation_shortage(asked, free, reservations, pods, named)

    def add_claim(self, name: str, amount: int) -> None:
        one = reservation(name, {"cpu": amount}, new=True)
        if name not in self.claims and self.fits({}, [*self.claims.values(), one], self.pods):
            self.claims[name] = reservation(name, {"cpu": amount})

    def add_pod(self, name: str, amount: int, claims: frozenset[str]) -> None:
        if name in self.pods:
            return
        joined = {
            claim: reservation(claim, one.amounts, *one.users, *([name] if claim in claims else []))
            for claim, one in self.claims.items()
        }
        asked = {"cpu": amount}
        if self.fits(asked, list(joined.values()), {**self.pods, name: asked}):
            self.pods[name], self.claims = asked, joined

    @property
    def promised(self) -> int:
        left = unused(list(self.claims.values()), self.pods)
        return sum(one["cpu"] for one in self.pods.values()) + sum(one["cpu"] for one in left.values())


NAMES = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.just("claim"), NAMES, st.integers(1, 8), st.just(frozenset[str]())),
    st.tuples(st.just("pod"), st.sampled_from("123456"), st.integers(0, 8), st.frozensets(NAMES, max_size=3)),
    st.tuples(st.just("leave"), st.sampled_from("123456"), st.just(0), st.just(frozenset[str]())),
    st.tuples(st.just("end"), NAMES, st.just(0), st.just(frozenset[str]())),
)


@given(st.integers(4, 16), st.lists(STEPS, max_size=40))
def test_a_node_is_never_oversubscribed_in_random_lives(
    size: int, steps: list[tuple[str, str, int, frozenset[str]]]
) -> None:
    node = Node(size)
    for step, name, amount, claims in steps:
        if step == "claim":
            node.add_claim(name, amount)
        elif step == "pod":
            node.add_pod(name, amount, claims)
        elif step == "leave":
            node.pods.pop(name, None)
        else:
            node.claims.pop(name, None)
        assert node.promised <= size


@given(st.integers(1, 16), st.lists(st.integers(1, 8), max_size=6))
def test_users_have_the_larger_of_what_is_reserved_and_what_they_use(reserved: int, used: list[int]) -> None:
    """One claim, and its users: others find exactly the rest."""
    pods = {f"p{i}": {"cpu": amount} for i, amount in enumerate(used)}
    held = [reservation("a", {"cpu": reserved}, *pods)]
    size, total = 100, sum(used)
    rest = size - max(reserved, total)
    for asked, fits in (({"cpu": rest}, True), ({"cpu": rest + 1}, total >= reserved)):
        told = reservation_shortage(asked, {"cpu": size - total}, held, {**pods, "other": asked}, named)
        assert (told == "") is fits


@given(
    st.dictionaries(NAMES, st.integers(1, 8), min_size=1),
    st.lists(st.tuples(st.integers(0, 8), st.frozensets(NAMES)), max_size=8),
    st.integers(0, 8),
    st.integers(0, 12),
)
def test_nominated_pods_and_reservation_pods_hold_no_more_than_what_is_reserved_or_free(
    reserved: dict[str, int], pods: list[tuple[int, frozenset[str]]], placed: int, room: int
) -> None:
    """Whatever tenants request: waiting pods that are served, and what is left for others, fit on the node."""
    amounts = {f"p{i}": {"cpu": cpu} for i, (cpu, _) in enumerate(pods)}
    held = [
        reservation(claim, {"cpu": cpu}, *(f"p{i}" for i, (_, claims) in enumerate(pods) if claim in claims))
        for claim, cpu in reserved.items()
    ]
    there = dict(list(amounts.items())[:placed])
    free = room + sum(one["cpu"] for one in unused(held, there).values())
    handover = hand_over(
        held, there, {pod: one for pod, one in amounts.items() if pod not in there}, {"cpu": free}
    )
    left = sum(one["cpu"] for one in handover.left.values())
    assert left + sum(amounts[pod]["cpu"] for pod in handover.served) <= free


@given(
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 8)),
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 24)),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=4),
    st.dictionaries(st.sampled_from(["0", "1", "p"]), st.integers(0, 8)),
)
def test_where_there_is_room_beside_all_reservations_nobody_is_kept_out(
    asked: Amounts, free: Amounts, amounts: list[tuple[int, bool]], used: Mapping[str, int]
) -> None:
    held = [reservation(str(i), {"cpu": cpu}, str(i), new=new) for i, (cpu, new) in enumerate(amounts)]
    reserved = [one.amounts for one in held if not one.new]
    if is_ample(asked, free, reserved, [one.amounts for one in held if one.new]):
        pods = {uid: {"cpu": amount} for uid, amount in used.items()}
        assert reservation_shortage(asked, free, held, pods, named) == ""
