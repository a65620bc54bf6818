"""How far topics have changed: never the same after a change, in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from parley.scheduler.revisions import MOST_TOPICS, Revisions

A, B = ("claim", "team", "a"), ("claim", "team", "b")


def test_a_change_of_a_topic_gives_another_revision_to_whoever_waits_for_it() -> None:
    revisions = Revisions()
    before = revisions.of([A, B])
    assert revisions.of([A, B]) == before
    revisions.changed(A)
    assert revisions.of([A, B]) != before
    assert revisions.of([B]) == before[1:]


def test_whether_topics_have_changed_since_a_number_of_then() -> None:
    revisions = Revisions()
    revisions.changed(A)
    number = revisions.latest
    assert not revisions.any_since([A, B], number)
    revisions.changed(B)
    assert revisions.any_since([A, B], number)
    assert not revisions.any_since([A], number)


def test_topics_that_come_and_go_do_not_stay_in_memory() -> None:
    revisions = Revisions()
    for number in range(3 * MOST_TOPICS):
        revisions.changed(("claim", "team", str(number)))
    assert len(revisions) == MOST_TOPICS


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_change_is_never_overlooked_however_many_others_there_are(before: int, after: int) -> None:
    revisions = Revisions(most=8)
    for number in range(before):
        revisions.changed(("other", str(number)))
    seen = revisions.of([A])
    revisions.changed(A)
    for number in range(after):
        revisions.changed(("another", str(number)))
    assert revisions.of([A]) != seen


def test_on_which_nodes_anything_changed_since_a_number_of_then() -> None:
    revisions = Revisions()
    revisions.changed(A, ["node-1"])
    number = revisions.latest
    revisions.changed(B, ["node-2", "node-3"])
    revisions.changed_on("node-3")
    assert revisions.nodes_since([A], number) == frozenset({"node-2", "node-3"})
    revisions.changed(B)
    assert revisions.nodes_since([A], number) == frozenset({"node-2", "node-3"})
    assert revisions.nodes_since([A, B], number) is None


@given(st.lists(st.sampled_from("abcdefghij"), max_size=30), st.integers(0, 30))
def test_no_node_on_which_something_changed_is_overlooked_though_few_are_remembered(nodes: str, seen: int) -> None:
    revisions = Revisions(most=4)
    for node in nodes:
        revisions.changed(A, [node])
    found = revisions.nodes_since([A], seen)
    assert found is None or found == set(nodes[seen:])
