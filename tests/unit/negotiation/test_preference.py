"""What a class's `prefer` comes to: which preference holds, and scores by what is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.models import ResourceClass
from parley.negotiation.preference import Prefer, preference_of_classes, scores_by_room

DEFAULTS: list[tuple[Prefer | None, bool, bool, Prefer]] = [
    (None, False, True, "Pack"),
    (None, False, False, "Spread"),
    (None, True, True, "Spread"),
    ("Pack", True, False, "Pack"),
    ("Spread", False, True, "Spread"),
]


@pytest.mark.parametrize(("stated", "shareable", "reports_room", "holds"), DEFAULTS, ids=str)
def test_what_holds_where_a_class_does_not_say(
    stated: Prefer | None, shareable: bool, reports_room: bool, holds: Prefer
) -> None:
    class_ = ResourceClass(driver_name="d.example.com", prefer=stated, shareable=shareable)
    assert preference_of_classes([class_.preference], reports_room=reports_room) == holds


def test_claims_of_several_classes_are_packed_if_one_is() -> None:
    assert preference_of_classes(["Spread", "Pack"], reports_room=False) == "Pack"
    assert preference_of_classes(["Spread", None], reports_room=True) == "Pack"
    assert preference_of_classes(["Spread", None], reports_room=False) == "Spread"
    assert preference_of_classes([], reports_room=False) == "Spread"


def test_the_best_stand_out_by_rank_and_equals_are_equal() -> None:
    left = {"a": 3.0, "b": 0.0, "c": 40.0, "d": 3.0}
    assert scores_by_room("Pack", left) == {"b": 1.0, "a": 0.5, "d": 0.5, "c": 1 / 3}
    assert scores_by_room("Spread", left) == {"c": 1.0, "a": 0.5, "d": 0.5, "b": 1 / 3}
    assert scores_by_room("Pack", {}) == {}


@given(st.dictionaries(st.text(max_size=2), st.floats(0, 1e9), max_size=9), st.sampled_from(["Pack", "Spread"]))
def test_scores_are_from_0_to_1_in_the_order_of_what_is_left(left: dict[str, float], prefer: Prefer) -> None:
    scores = scores_by_room(prefer, left)
    assert all(0 < score <= 1 for score in scores.values())
    in_order = sorted(left, key=lambda node: -scores[node])
    assert [left[node] for node in in_order] == sorted(left.values(), reverse=prefer == "Spread")
