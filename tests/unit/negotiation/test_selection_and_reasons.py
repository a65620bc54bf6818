"""Which viable node is selected, and how refusals read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.negotiation.answers import by_reason
from parley.negotiation.selection import ranked, rotated

names = st.sampled_from(["a", "b", "c", "d"])


def test_the_highest_score_wins_then_the_order_given() -> None:
    assert ranked(["a", "b", "c"], {"b": 0.5, "c": 0.5}) == ["b", "c", "a"]
    assert ranked(["a", "b"], {}) == ["a", "b"]
    assert ranked([], {"a": 1}) == []


def test_a_node_to_avoid_is_selected_only_when_there_is_no_other() -> None:
    assert ranked(["a", "b"], {"a": 1.0}, frozenset({"a"})) == ["b", "a"]
    assert ranked(["a"], {}, frozenset({"a"})) == ["a"]


def test_all_viable_nodes_are_ranked_those_to_avoid_last_and_those_with_fewer_pods_first() -> None:
    pods = {"a": 2, "b": 1, "c": 0, "d": 0}
    assert ranked(["a", "b", "c", "d"], {"d": 0.5}, frozenset({"c"}), pods.__getitem__) == ["d", "b", "a", "c"]


@given(st.lists(names, unique=True), st.dictionaries(names, st.floats(0, 1)), st.frozensets(names))
def test_viable_nodes_alone_are_ranked(viable: list[str], scores: dict[str, float], avoid: frozenset[str]) -> None:
    found = ranked(viable, scores, avoid)
    assert sorted(found) == sorted(viable)
    if set(viable) - avoid:
        assert found[0] not in avoid


def test_nodes_with_the_same_reason_are_told_together() -> None:
    reasons = {"a": "cordoned", "b": "has no devices", "c": "cordoned"}
    assert by_reason(reasons) == "nodes a, c: cordoned; node b: has no devices"


def test_many_nodes_are_counted_rather_than_listed() -> None:
    assert by_reason({f"n{i}": "is full" for i in range(6)}) == "nodes n0, n1, n2 and 3 more: is full"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.text(max_size=5))
def test_each_name_comes_once_in_its_turn_from_a_place_of_the_objects_own(names: list[str], uid: str) -> None:
    found = list(rotated(names, uid))
    turns = [names[n:] + names[:n] for n in range(len(names))] or [[]]
    assert found in turns
    assert found == list(rotated(names, uid))


def test_not_everybody_begins_at_the_same_node() -> None:
    names = [f"node-{number}" for number in range(10)]
    firsts = {next(iter(rotated(names, f"uid-{number}"))) for number in range(100)}
    assert len(firsts) == len(names)
