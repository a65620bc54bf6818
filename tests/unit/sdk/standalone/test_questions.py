"""What a PodScheduling asks of a driver: which questions are alike, when one changed, where it can be answered."""

from dataclasses import replace
from typing import Any

from parley.api.builtin import Node, ObjectMeta
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.selectors import node_selector
from parley.sdk import PodReference
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.questions import ClaimEntry, PodQuestion, about_claim, available

DRIVER = "disks.example.com"
NODES = [Node(ObjectMeta(name=name)) for name in ("a", "b", "c")]


def a_class(**more: Any) -> ResourceClass:
    metadata = {"name": "disk", "uid": "uid-disk", "generation": 1}
    return ResourceClass.model_validate({"metadata": metadata, "driverName": DRIVER, **more})


def a_claim(name: str = "c", *, on: str = "", status: dict[str, Any] | None = None, **more: Any) -> ResourceClaim:
    allocation = {"driverName": DRIVER, "allocation": {"availableOnNodes": node_selector([on])}} if on else {}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", **more.pop("metadata", {})}
    spec = {"resourceClassName": "disk", **more}
    return ResourceClaim.model_validate(
        {"metadata": metadata, "spec": spec, "status": {**allocation, **(status or {})}}
    )


def asked(*claims: ResourceClaim, pod: str = "p", class_: ResourceClass | None = None) -> PodQuestion:
    found = tuple(ClaimEntry(claim.metadata.name, claim, class_ or a_class()) for claim in claims)
    return PodQuestion(PodReference("team", pod, f"uid-{pod}"), found, ("a", "b"), 1)


def test_only_claims_that_hold_nothing_are_pending() -> None:
    question = asked(a_claim("one"), a_claim("two", on="a"))
    assert [entry.name for entry in question.pending] == ["one"]
    assert question.entries[0].ref == ClaimRef(("team", "one"), "uid-one")


def test_pods_that_want_the_same_are_alike_whatever_their_claims_and_candidates_are() -> None:
    one = asked(a_claim("one", parameters={"size": 1, "kind": "ssd"}))
    two = replace(asked(a_claim("two", parameters={"kind": "ssd", "size": 1}), pod="q"), candidates=("c",))
    assert one.signature == two.signature
    assert one.signature != asked(a_claim("one", parameters={"size": 2, "kind": "ssd"})).signature
    assert one.signature != replace(one, pod=PodReference("other", "p", "uid-p")).signature
    assert one.signature != asked(*(entry.claim for entry in one.entries), a_claim("held", on="a")).signature


def test_the_state_changes_with_the_question_and_with_what_it_is_about() -> None:
    question = asked(a_claim())
    metadata = {"name": "disk", "uid": "uid-disk", "generation": 2}
    other_class = ResourceClass.model_validate({**a_class().wire(), "metadata": metadata})
    changed = [
        replace(question, round=2),
        replace(question, candidates=("a",)),
        asked(a_claim(on="a")),
        asked(a_claim(metadata={"uid": "uid-anew"})),
        asked(a_claim(), class_=other_class),
    ]
    assert asked(a_claim()).state == question.state
    assert asked(a_claim(), class_=a_class(status={"free": 3})).state == question.state
    assert all(other.state != question.state for other in changed)


def test_the_strictest_class_limits_the_time() -> None:
    slow, quick = a_class(allocationTimeoutSeconds=600), a_class(allocationTimeoutSeconds=60)
    both = asked(a_claim("one"), class_=slow).entries + asked(a_claim("two"), class_=quick).entries
    assert PodQuestion(PodReference("team", "p", "uid-p"), both).seconds == 60


def test_suitable_is_what_classes_and_allocated_claims_select() -> None:
    suitable = a_class(suitableNodes=node_selector(["a", "b"]))
    assert asked(a_claim(), class_=suitable).suitable(NODES) == ["a", "b"]
    assert asked(a_claim()).suitable(NODES) == ["a", "b", "c"]
    held = asked(a_claim("one"), a_claim("two", on="b"), class_=suitable)
    assert held.suitable(NODES) == ["b"]


def test_an_allocated_claim_is_available_where_its_record_says_known_node_or_not() -> None:
    (entry,) = asked(a_claim(on="a")).entries
    assert available(entry, "a", NODES[0])
    assert available(entry, "a", None)
    assert not available(entry, "b", NODES[1])


def test_a_claim_that_is_deleted_or_to_be_deallocated_is_terminating() -> None:
    deleted = a_claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    requested = a_claim(on="a", status={"deallocationRequested": True})
    found = [entry.terminating for entry in asked(a_claim(), deleted, requested).entries]
    assert found == [False, True, True]


def test_where_no_pod_asks_the_claim_is_its_own_entry() -> None:
    question = about_claim(a_claim(), a_class())
    assert question.pod == PodReference("team", "", "")
    assert [entry.name for entry in question.entries] == ["c"]
    assert question.uid == "uid-c"
    assert asked(a_claim()).uid == "uid-p"
