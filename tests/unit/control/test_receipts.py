"""A ClaimRelease names all that a restarted controller needs, under a name that follows from claim and node."""

import pytest
from tests.unit.control.builders import NAMESPACE, TOKENS, a_holding, read

from parley.api.names import CONDITION_RELEASING
from parley.api.resources import CLAIM_RELEASES
from parley.control.holding import PreparedOn
from parley.control.release.receipts import prepared_by, record, record_name, releasing_condition, waits_for

HERE = PreparedOn("uid-mirror", "node-1")


def test_a_record_is_read_back_as_what_it_was_made_for() -> None:
    holding = a_holding("c", shown_by={"uid-mirror": "c-again"}, class_name="licence", units=3)
    body = record(holding, HERE)
    release = read(CLAIM_RELEASES, body)
    assert prepared_by(release) == HERE
    spec = release.spec
    assert (spec.claim.namespace, spec.claim.name, spec.claim.uid) == (NAMESPACE, "c-again", "uid-mirror")
    assert (spec.driver_name, spec.holding_uid) == (TOKENS, "uid-c")
    assert (spec.resource_class_name, spec.units) == ("licence", 3)


def test_it_belongs_to_no_namespace_and_no_owner() -> None:
    assert record(a_holding("c"), HERE)["metadata"] == {"name": record_name(HERE)}


@pytest.mark.parametrize("node", ["node-1", "n" * 253, "a.b.c"])
def test_the_name_is_valid_and_the_same_each_time(node: str) -> None:
    uid = "f69c6c66-04fa-4ee8-8b63-46cf1573a87d"
    name = record_name(PreparedOn(uid, node))
    assert name == record_name(PreparedOn(uid, node))
    assert len(name) <= 253
    assert name.startswith(uid)


def test_another_node_or_claim_has_another_name() -> None:
    several = [PreparedOn("u", "a"), PreparedOn("u", "b"), PreparedOn("v", "a")]
    assert len({record_name(one) for one in several}) == 3


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            ["a"],
            "a pod that used it on node a was deleted by force, and the node plugin there has yet to confirm that "
            "it is not prepared any more: bring the node back, or, if it is shut down, taint it "
            "node.kubernetes.io/out-of-service",
        ),
        (
            ["a", "b"],
            "pods that used it on nodes a, b were deleted by force, and the node plugins there have yet to "
            "confirm that it is not prepared any more: bring them back, or taint those that are shut down "
            "node.kubernetes.io/out-of-service",
        ),
    ],
    ids=["one", "two"],
)
def test_what_is_waited_for_comes_with_the_remedy(nodes: list[str], expected: str) -> None:
    assert waits_for(a_holding("c", owed={PreparedOn("u", node) for node in nodes})) == expected


def test_what_is_removed_comes_with_the_remedy() -> None:
    holding = a_holding("c", owed={PreparedOn("u", "a")}, removing=True)
    assert waits_for(holding) == (
        "the node plugin of node a has yet to remove what pods left there for it: see its log, or, if the node is "
        "shut down, taint it node.kubernetes.io/out-of-service"
    )
    assert releasing_condition(holding).reason == "RemovingData"


def test_the_condition_names_the_nodes_that_owe_something() -> None:
    holding = a_holding("c", owed={PreparedOn("u", "b"), PreparedOn("u", "a")})
    update = releasing_condition(holding)
    assert (update.type, update.reason) == (CONDITION_RELEASING, "ForcedDeletion")
    assert update.message == waits_for(holding)
