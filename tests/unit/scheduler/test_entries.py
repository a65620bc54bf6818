"""What standalone drivers' entries in a PodScheduling say."""

from typing import Any

from parley.api.models import ClaimScheduling
from parley.scheduler.entries import answer_of, capacity_of, scores_of


def entry(**fields: Any) -> ClaimScheduling:
    return ClaimScheduling.model_validate(
        {"name": "seat", "driverName": "seats.example.com", "round": 1, **fields}
    )


def test_nodes_that_the_driver_was_not_asked_about_or_never_will_do_are_not_viable() -> None:
    found = answer_of(entry(viableNodes=["a", "b", "x"], reason="c: full"), ("a", "b", "c"), {"b": "no cable"})
    assert found.viable == ("a",)
    assert found.reasons == {"b": "no cable", "c": "full"}


def test_an_answers_words_by_node() -> None:
    reason = "a: no disk; array 1 is full; b: c: is it; d: none of ours"
    found = answer_of(entry(reason=reason), ("a", "b", "c"), {})
    assert found.reasons == {
        "a": "no disk; array 1 is full",
        "b": "c: is it; d: none of ours",
        "c": "not viable",
    }


def test_words_that_name_no_node_are_about_each() -> None:
    assert answer_of(entry(reason="no licence; see the shop"), ("a", "b"), {}).reasons == dict.fromkeys(
        ("a", "b"), "no licence; see the shop"
    )


def test_of_a_pods_claims_the_one_with_the_least_capacity_counts_and_only_where_all_are_viable() -> None:
    one = entry(viableNodes=["a", "b", "c"], capacity={"a": 4, "b": 2, "x": 9})
    other = entry(viableNodes=["a", "b"], capacity={"a": 3, "b": 5})
    assert capacity_of([one, other]) == {"a": 3, "b": 2}
    assert capacity_of([one, entry(viableNodes=["a"])]) == {}


def test_the_best_score_of_any_claim_counts() -> None:
    assert scores_of([entry(scores={"a": 50}), entry(scores={"a": 80, "b": 10})]) == {"a": 0.8, "b": 0.1}
