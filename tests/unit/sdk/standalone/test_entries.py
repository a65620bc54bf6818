"""A driver's entries in a PodScheduling: answers and failures, as they are written and found again."""

from typing import Any

from parley.api import reasons
from parley.api.builtin import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from parley.api.models import AllocationFailure, PodScheduling, ResourceClaim, ResourceClass
from parley.negotiation.answers import Answer
from parley.scheduler.entries import scores_of
from parley.sdk import PodReference
from parley.sdk.standalone import entries
from parley.sdk.standalone.questions import ClaimEntry, PodQuestion

DRIVER = "disks.example.com"
CLASS = ResourceClass.model_validate({"metadata": {"name": "disk"}, "driverName": DRIVER})


def a_question(*names: str, round: int = 2) -> PodQuestion:
    claims = tuple(
        ClaimEntry(
            name,
            ResourceClaim.model_validate({"metadata": {"name": name}, "spec": {"resourceClassName": "disk"}}),
            CLASS,
        )
        for name in names
    )
    return PodQuestion(PodReference("team", "p", "uid-p"), claims, ("a", "b"), round)


def scheduling(*claims: Any, round: int = 2, selected: str = "a") -> PodScheduling:
    return PodScheduling.model_validate(
        {
            "metadata": {"name": "p", "namespace": "team", "uid": "uid-s"},
            "spec": {"round": round, "selectedNode": selected},
            "status": {"claims": list(claims)},
        }
    )


def entry(name: str, *, driver: str = DRIVER, round: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "driverName": driver, "round": round, **more}


def test_an_answer_has_viable_nodes_scores_and_why_others_are_not() -> None:
    answer = Answer(("a",), ("c",), {"b": "no free disk"})
    (written,) = entries.answered(DRIVER, a_question("disk"), {"disk": answer}, {"a": 0.756, "b": 1.0}, {"a": 3})
    assert written == entry(
        "disk",
        viableNodes=["a"],
        alternatives={"nodes": ["c"]},
        scores={"a": 76},
        capacity={"a": 3},
        reason="b: no free disk",
    )


def test_the_scores_stand_in_one_entry_as_the_controller_takes_the_best_of_all() -> None:
    """Repeated for each of 128 claims, they made the object larger than the API server allows."""
    answers = {name: Answer(("a", "b")) for name in ("one", "two")}
    one, two = entries.answered(DRIVER, a_question("one", "two"), answers, {"a": 0.5, "b": 1.0}, {})
    assert one["scores"] == {"a": 50, "b": 100}
    assert "scores" not in two
    assert scores_of(scheduling(one, two).status.claims) == {"a": 0.5, "b": 1.0}


def test_alternatives_may_be_a_selector_or_left_out() -> None:
    selector = NodeSelector([NodeSelectorTerm([NodeSelectorRequirement("rack", "In", ["1"])])])
    answers = {"one": Answer((), selector), "two": Answer(("a",))}
    one, two = entries.answered(DRIVER, a_question("one", "two"), answers, {}, {})
    (term,) = one["alternatives"]["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "rack", "operator": "In", "values": ["1"]}]
    assert two == entry("two", viableNodes=["a"])


def test_a_refused_question_is_answered_with_no_node_and_the_reason_for_every_claim() -> None:
    one, two = entries.refused(DRIVER, a_question("one", "two"), reasons.DRIVER_FAILED, "x" * 5000)
    assert one == entry(
        "one", viableNodes=[], alternatives={"nodes": []}, reason="x" * 4096, waitingFor="DriverFailed"
    )
    assert two == {**one, "name": "two"}
    assert entries.are_written(DRIVER, scheduling(one, two), (one, two))


def test_entries_that_are_written_already_are_recognised() -> None:
    mine, others = entry("disk", viableNodes=["a"]), entry("gpu", driver="gpus.example.com")
    assert entries.are_written(DRIVER, scheduling(mine, others), (mine,))
    assert not entries.are_written(DRIVER, scheduling(mine, others), ({**mine, "round": 3},))
    assert not entries.are_written(DRIVER, scheduling(mine), (mine, entry("more")))
    assert not entries.are_written(DRIVER, scheduling(mine, entry("more")), (mine,))


def test_a_failure_is_added_to_the_answer_of_this_round_and_taken_off_again() -> None:
    failure = AllocationFailure(node_name="a", message="read-only")
    answer, outdated = entry("disk", viableNodes=["a"]), entry("old", round=1, viableNodes=["b"])
    wanted = entries.failed(DRIVER, scheduling(answer, outdated), ["disk", "old"], failure)
    assert wanted == ({**answer, "failure": failure.wire()}, entry("old", failure=failure.wire()))
    cleared = entries.failed(DRIVER, scheduling(*wanted), ["disk", "old"], None)
    assert cleared == (answer, entry("old"))


def test_a_failure_counts_for_the_round_and_the_node_that_it_is_about() -> None:
    failed = entry("disk", failure={"nodeName": "a", "message": "read-only"})
    found = entries.reported_failure(DRIVER, scheduling(failed))
    assert found is not None
    assert found.message == "read-only"
    assert entries.reported_failure(DRIVER, scheduling(failed, round=3)) is None
    assert entries.reported_failure(DRIVER, scheduling(failed, selected="b")) is None
    assert entries.reported_failure("gpus.example.com", scheduling(failed)) is None


def test_what_is_applied_names_the_object_that_it_is_for_by_uid() -> None:
    body = entries.body(scheduling(), (entry("disk"),))
    assert body["metadata"] == {"name": "p", "namespace": "team", "uid": "uid-s"}
    assert body["status"] == {"claims": [entry("disk")]}
