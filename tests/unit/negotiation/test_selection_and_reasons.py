"""Which viable node is selected, and how refusals read."""

from hypothesis import given
from hypothesis import strategies as st

from parley.negotiation.answers import by_reason
from parley.negotiation.selection import select

names = st.sampled_from(["a", "b", "c", "d"])


def test_the_highest_score_wins_then_the_order_given() -> None:
    assert select(["a", "b", "c"], {"b": 0.5, "c": 0.5}) == "b"
    assert select(["a", "b"], {}) == "a"
    assert select([], {"a": 1}) is None


def test_a_node_to_avoid_is_selected_only_when_there_is_no_other() -> None:
    assert select(["a", "b"], {"a": 1.0}, frozenset({"a"})) == "b"
    assert select(["a"], {}, frozenset({"a"})) == "a"


@given(st.lists(names, unique=True), st.dictionaries(names, st.floats(0, 1)), st.frozensets(names))
def test_only_viable_nodes_are_selected(
    viable: list[str], scores: dict[str, float], avoid: frozenset[str]
) -> None:
    selected = select(viable, scores, avoid)
    assert (selected in viable) if viable else selected is None
    if set(viable) - avoid:
        assert selected not in avoid


def test_nodes_with_the_same_reason_are_told_together() -> None:
    reasons = {"a": "cordoned", "b": "has no devices", "c": "cordoned"}
    assert by_reason(reasons) == "nodes a, c: cordoned; node b: has no devices"


def test_many_nodes_are_counted_rather_than_listed() -> None:
    assert by_reason({f"n{i}": "is full" for i in range(6)}) == "nodes n0, n1, n2 and 3 more: is full"
