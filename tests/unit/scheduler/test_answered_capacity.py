"""For how many further pods a driver's answer is good."""

from collections.abc import Iterator
from itertools import count

from tests.unit.control.builders import a_holding

from parley.control.ledger import Ledger
from parley.negotiation.waiting import Place
from parley.scheduler.answered_capacity import FRESH_SECONDS, HOLD_SECONDS, MAX_LINES_ASKED, AnsweredCapacity
from parley.sdk import PodReference

SEAT, DISK, DRIVER = "a seat", "a disk", "seats.example.com"

_numbers: Iterator[int] = count()


def pod(name: str) -> PodReference:
    return PodReference("team", name, f"uid-{name}")


def asked(capacity: AnsweredCapacity, *names: str, now: float = 0.0) -> None:
    for name in names:
        capacity.asked(pod(name).uid, SEAT, now)


def answered(capacity: AnsweredCapacity, name: str = "p", now: float = 0.0, **left: int) -> list[str]:
    return [key[1] for key in capacity.answered(pod(name).uid, SEAT, DRIVER, left, {}, now)]


def hold(capacity: AnsweredCapacity, name: str, now: float = 0.0, priority: int = 0) -> float:
    return capacity.hold(("team", name), Place(-priority, next(_numbers)), SEAT, DRIVER, now)


def test_a_node_is_good_for_as_many_pods_as_the_answer_says() -> None:
    capacity = AnsweredCapacity(Ledger())
    asked(capacity, "first", "other")
    answered(capacity, "first", a=2, b=1)
    assert sorted(capacity.nodes(SEAT, 0.0)) == ["a", "b"]
    assert capacity.nodes(DISK, 0.0) == []
    for name in ("first", "second"):
        capacity.selected(pod(name), SEAT, "a")
    assert capacity.nodes(SEAT, 0.0) == ["b"]


def test_an_old_answer_says_nothing() -> None:
    capacity = AnsweredCapacity(Ledger())
    answered(capacity, a=2)
    assert capacity.nodes(SEAT, FRESH_SECONDS - 1) == ["a"]
    assert capacity.nodes(SEAT, FRESH_SECONDS) == []


def test_the_driver_is_asked_again_in_time_and_about_one_pod() -> None:
    capacity = AnsweredCapacity(Ledger())
    answered(capacity, a=4)
    for name in ("p1", "p2"):
        assert capacity.nodes(SEAT, 0.0) == ["a"]
        capacity.selected(pod(name), SEAT, "a")
    capacity.selected(pod("p3"), SEAT, "a")
    assert capacity.nodes(SEAT, 0.0) == []  # the driver is to be asked about this pod
    asked(capacity, "p4")
    assert capacity.nodes(SEAT, 0.0) == ["a"]


def test_a_selected_node_counts_until_its_allocation_is_seen() -> None:
    ledger = Ledger()
    capacity = AnsweredCapacity(ledger)
    capacity.selected(pod("p"), SEAT, "a")
    answered(capacity, "q", a=1)
    assert capacity.nodes(SEAT, 0.0) == []
    ledger.add(a_holding("p-seat", pods={"uid-p": pod("p")}))
    answered(capacity, "r", a=1)
    assert capacity.nodes(SEAT, 0.0) == ["a"]


def test_a_node_where_the_driver_failed_is_good_for_nobody() -> None:
    capacity = AnsweredCapacity(Ledger())
    answered(capacity, a=9, b=9)
    capacity.failed(SEAT, "a")
    assert capacity.nodes(SEAT, 0.0) == ["b"]
    assert capacity.not_full(SEAT, ("a", "b", "c")) == ("b", "c")
    assert capacity.not_full(SEAT, ("a",)) == ("a",)
    assert capacity.not_full(DISK, ("a",)) == ("a",)


def test_while_one_waits_for_the_same_there_is_enough_for_nobody() -> None:
    capacity = AnsweredCapacity(Ledger())
    answered(capacity, a=9)
    assert capacity.none_viable("uid-w", SEAT) == []
    assert capacity.nodes(SEAT, 0.0) == []
    capacity.ended("uid-w")
    assert capacity.nodes(SEAT, 0.0) == ["a"]


def test_pods_of_a_burst_wait_for_the_first_answers() -> None:
    capacity = AnsweredCapacity(Ledger())
    for number in range(MAX_LINES_ASKED):
        assert hold(capacity, f"p{number}") == 0.0
        asked(capacity, f"p{number}")
    assert hold(capacity, "low", now=1.0) == HOLD_SECONDS - 1.0
    assert hold(capacity, "high", now=1.0, priority=5) == HOLD_SECONDS - 1.0
    assert hold(capacity, "last", now=HOLD_SECONDS) == 0.0
    assert answered(capacity, "p0", a=1) == ["high", "low"]  # one more, to be asked about


def test_when_there_are_more_than_the_answer_is_good_for_they_go_on_waiting() -> None:
    capacity = AnsweredCapacity(Ledger())
    asked(capacity, *(f"p{number}" for number in range(MAX_LINES_ASKED)))
    for number in range(5):
        hold(capacity, f"h{number}")
    assert answered(capacity, "p0", a=2) == ["h0", "h1", "h2"]
    capacity.stop_holding(("team", "h3"))
    assert answered(capacity, "p1", a=9) == ["h4"]


def test_of_a_driver_that_does_not_say_so_every_pod_is_asked_about() -> None:
    capacity = AnsweredCapacity(Ledger())
    asked(capacity, *(f"p{number}" for number in range(MAX_LINES_ASKED)))
    assert hold(capacity, "h") > 0
    assert answered(capacity, "p0") == ["h"]
    assert hold(capacity, "h") == 0.0


def test_that_it_is_not_said_for_a_pod_that_waited_says_nothing_about_the_driver() -> None:
    capacity = AnsweredCapacity(Ledger())
    answered(capacity, "p0", a=1)
    capacity.none_viable("uid-w", SEAT)
    answered(capacity, "w")
    capacity.ended("uid-w")
    asked(capacity, "p1")
    assert hold(capacity, "h") > 0


def test_nothing_is_remembered_of_pods_that_are_done() -> None:
    capacity = AnsweredCapacity(Ledger())
    asked(capacity, "p")
    capacity.selected(pod("p"), SEAT, "a")
    capacity.none_viable("uid-q", SEAT)
    asked(capacity, *(f"p{number}" for number in range(MAX_LINES_ASKED)))
    for number in range(MAX_LINES_ASKED):
        capacity.ended(f"uid-p{number}")
    for name in ("p", "q"):
        capacity.ended(f"uid-{name}")
    kept = {name: value for name, value in vars(capacity).items() if value and name not in ("_ledger", "_tells")}
    assert kept == {}
