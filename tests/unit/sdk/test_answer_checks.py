"""Answers of a wrong type: the driver's fault, told in words before anybody works with them."""

from typing import Any

import pytest

from parley.drivers.device import DeviceDriver
from parley.sdk import Answer
from parley.sdk.checks import DriverFault, check_answers, check_observed
from parley.sdk.testing import request

WANTED: Any = request(DeviceDriver(), "p", {"model": "a100"})

FAULTY: list[tuple[Any, str]] = [
    (True, "answered is True; it must be an Answer"),
    (("a",), "answered is ('a',); it must be an Answer"),
    (Answer("a"), "viable is 'a'; it must be a tuple of nodes"),  # type: ignore[arg-type]
    (Answer(None), "viable is None; it must be a tuple of nodes"),  # type: ignore[arg-type]
    (
        Answer((), ["b"]),  # type: ignore[arg-type]
        "alternatives is ['b']; it must be a tuple of nodes, a NodeSelector or None",
    ),
    (Answer((), (5,)), "alternatives is (5,); it must be a tuple of nodes, a NodeSelector or None"),  # type: ignore[arg-type]
    (Answer((), ("",)), "alternatives is ('',); it must be a tuple of nodes, a NodeSelector or None"),
    (Answer((), None, None), "reasons is None; it must be a mapping from nodes to texts"),  # type: ignore[arg-type]
    (Answer((), None, "no"), "reasons is 'no'; it must be a mapping from nodes to texts"),  # type: ignore[arg-type]
    (Answer((), None, {"a": 5}), "reasons has 5, which is no text that can be written"),  # type: ignore[dict-item]
    (Answer((), None, {"a": "caf\udce9"}), r"reasons has 'caf\udce9', which is no text that can be written"),
]


@pytest.mark.parametrize(("answer", "fault"), FAULTY)
def test_it_says_what_is_wrong_with_an_answer(answer: Any, fault: str) -> None:
    with pytest.raises(DriverFault) as raised:
        check_answers("d", WANTED, ["a"], {"claim-0": answer})
    assert str(raised.value) == f"driver d, claim 'claim-0': {fault}"


def test_a_message_is_the_same_at_each_attempt() -> None:
    """An address in memory made another message, event and status each time."""

    class Own:
        """Without a __repr__."""

    with pytest.raises(DriverFault) as raised:
        check_answers("d", WANTED, ["a"], {"claim-0": Answer(Own() for _ in "")})  # type: ignore[arg-type]
    assert " at 0x" not in str(raised.value)
    with pytest.raises(DriverFault, match=r"<.*Own object>; it must be an Answer"):
        check_answers("d", WANTED, ["a"], {"claim-0": Own()})  # type: ignore[dict-item]


def test_nodes_that_are_spent_by_looking_at_them_are_none() -> None:
    with pytest.raises(DriverFault, match="it must be a tuple of nodes"):
        check_answers("d", WANTED, ["a"], {"claim-0": Answer(node for node in "a")})  # type: ignore[arg-type]


@pytest.mark.parametrize("answers", [None, Answer(("a",)), [Answer(("a",))]])
def test_what_is_no_mapping_is_no_answer(answers: Any) -> None:
    with pytest.raises(DriverFault, match="must be a mapping from the names of the request's claims to an Answer"):
        check_answers("d", WANTED, ["a"], answers)


@pytest.mark.parametrize("viable", [["a"], {"a"}, ("a",)])
def test_any_collection_of_asked_nodes_will_do(viable: Any) -> None:
    check_answers("d", WANTED, ["a"], {"claim-0": Answer(viable, (), {"b": "no café"})})


@pytest.mark.parametrize("found", [None, "node-1", 1])
def test_what_observe_returns_must_say_whom_to_wake(found: Any) -> None:
    with pytest.raises(DriverFault, match="from observe; it must be True, False or the names of the nodes"):
        check_observed("d", found)


@pytest.mark.parametrize("found", [True, False, (), {"a"}, ["a"]])
def test_observe_may_return_truth_or_nodes(found: Any) -> None:
    check_observed("d", found)
