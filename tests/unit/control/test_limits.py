"""What a namespace holds of a class, counted from the moment an allocation begins, and what its limits leave."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.builders import a_class

from parley.api.models import ResourceClass
from parley.control.limits import Limits, limit_for, topic
from parley.negotiation.waiting import Topic


def limited(*limits: Mapping[str, Any]) -> ResourceClass:
    return a_class(limits=list(limits))


def test_without_a_limit_there_is_always_room() -> None:
    limits = Limits()
    limits.count("held", "licence", "team", 1_000)
    assert limits.excess(a_class(), "team", {"wanted": 1_000}) == ""


@pytest.mark.parametrize(
    ("what", "limit", "held", "wanted", "message"),
    [
        ("the last claim", {"claims": 2}, {"a": 5}, {"b": 5}, ""),
        (
            "one claim too many",
            {"claims": 1},
            {"a": 5},
            {"b": 5},
            "namespace team holds 1 of 1 claims that class licence allows it, 1 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].claims",
        ),
        ("the last units", {"units": 10}, {"a": 5}, {"b": 5}, ""),
        (
            "two claims together",
            {"units": 10},
            {"a": 5},
            {"b": 3, "c": 3},
            "namespace team holds 5 of 10 units that class licence allows it, 6 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].units",
        ),
        ("a claim that is counted already", {"units": 5, "claims": 1}, {"a": 5}, {"a": 5}, ""),
        (
            "a limit lowered under what is held",
            {"claims": 1},
            {"a": 1, "b": 1},
            {"c": 0},
            "namespace team holds 2 of 1 claims that class licence allows it, 1 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].claims",
        ),
        (
            "nothing allowed",
            {"claims": 0},
            {},
            {"a": 1},
            "namespace team wants 1 claim of class licence at a time, which allows it none: raise the class's "
            "limits[0].claims",
        ),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) and len(value) < 50 else "",
)
def test_what_exceeds_a_limit_is_told_with_the_remedy(
    what: str, limit: dict[str, int], held: dict[str, int], wanted: dict[str, int], message: str
) -> None:
    limits = Limits()
    for uid, units in held.items():
        limits.count(uid, "licence", "team", units)
    assert limits.excess(limited(limit), "team", wanted) == message


def test_other_namespaces_and_other_classes_do_not_count() -> None:
    limits = Limits()
    limits.count("theirs", "licence", "other", 1)
    limits.count("else", "gpu", "team", 1)
    assert limits.excess(limited({"claims": 1}), "team", {"mine": 1}) == ""


@pytest.mark.parametrize(
    ("namespace", "claims"), [("named", 1), ("named-twice", 2), ("any-other", 9)], ids=["named", "first", "other"]
)
def test_the_first_limit_that_names_the_namespace_holds_before_one_that_names_none(
    namespace: str, claims: int
) -> None:
    class_ = limited(
        {"claims": 9},
        {"namespaces": ["named"], "claims": 1},
        {"namespaces": ["named-twice"], "claims": 2},
        {"namespaces": ["named-twice"], "claims": 3},
    )
    found = limit_for(class_, namespace, {})
    assert found is not None
    assert found[1].claims == claims
    assert class_.limits[found[0]] is found[1]


def test_a_namespace_that_no_limit_is_for_has_none() -> None:
    assert limit_for(limited({"namespaces": ["named"], "claims": 0}), "any-other", {}) is None


BY_LABELS = limited(
    {"claims": 9},
    {"namespaceSelector": {"matchLabels": {"tier": "gold"}}, "claims": 5},
    {"namespaces": ["team"], "claims": 4},
    {
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["silver", "bronze"]},
                {"key": "suspended", "operator": "DoesNotExist"},
            ]
        },
        "claims": 3,
    },
    {"namespaceSelector": {"matchExpressions": [{"key": "suspended", "operator": "Exists"}]}, "claims": 0},
)


@pytest.mark.parametrize(
    ("namespace", "labels", "index"),
    [
        ("any", {}, 0),
        ("any", {"tier": "gold"}, 1),
        ("team", {"tier": "gold"}, 1),
        ("team", {"tier": "silver"}, 2),
        ("any", {"tier": "silver"}, 3),
        ("any", {"tier": "silver", "suspended": ""}, 4),
        ("any", {"tier": "copper"}, 0),
    ],
)
def test_the_first_limit_that_names_or_selects_the_namespace_holds(
    namespace: str, labels: dict[str, str], index: int
) -> None:
    found = limit_for(BY_LABELS, namespace, labels)
    assert found == (index, BY_LABELS.limits[index])


def test_the_empty_selector_is_for_every_namespace_and_notin_for_those_without_the_label() -> None:
    assert limit_for(limited({"claims": 9}, {"namespaceSelector": {}, "claims": 1}), "any", {}) is not None
    apart = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}
    class_ = limited({"namespaceSelector": apart, "claims": 1})
    assert limit_for(class_, "any", {}) is not None
    assert limit_for(class_, "any", {"tier": "gold"}) is None


def test_the_message_names_the_limit_that_holds() -> None:
    limits = Limits(labels=lambda namespace: {"tier": "silver"} if namespace == "team" else None)
    for uid in "abc":
        limits.count(uid, "licence", "team", 1)
    assert limits.excess(BY_LABELS, "team2", {"d": 1}) == (
        "the labels of namespace team2 are not known, and class licence has limits with a namespaceSelector: "
        "let the controller list and watch namespaces"
    )
    assert limits.excess(a_class(limits=[{"claims": 0}]), "team2", {}) == "", "no labels are needed"
    class_ = limited(*(limit.wire() for limit in BY_LABELS.limits[3:4]))
    assert limits.excess(class_, "team", {"d": 1}) == (
        "namespace team holds 3 of 3 claims that class licence allows each namespace with the labels "
        "tier in (silver, bronze),!suspended, 1 more wanted: delete pods or claims that hold some, or raise the "
        "class's limits[0].claims"
    )


def test_what_is_more_than_the_limit_needs_another_remedy_than_to_end_others() -> None:
    limits = Limits()
    class_ = limited({"claims": 2, "units": 4})
    limits.count("a", "licence", "team", 1)

    assert limits.excess(class_, "team", {"b": 1, "c": 1, "d": 1}) == (
        "namespace team wants 3 claims of class licence at a time, which allows it 2 in all: request less, or "
        "raise the class's limits[0].claims"
    )
    assert limits.excess(class_, "team", {"b": 5}) == (
        "namespace team wants 5 units of class licence at a time, which allows it 4 in all: request less, or "
        "raise the class's limits[0].units"
    )
    assert limits.never_allow(class_, "team", {"b": 5})
    assert not limits.never_allow(class_, "team", {"b": 4})


def test_whoever_waits_hears_once_when_a_namespace_holds_less() -> None:
    heard: list[Topic] = []
    limits = Limits(heard.append)
    limits.count("a", "licence", "team", 1)
    limits.count("a", "licence", "team", 2)
    assert heard == []
    limits.forget("a")
    limits.forget("a")
    assert heard == [topic("licence", "team")]


Change = tuple[str, str, str, int | None]
"""Claim, class, namespace, units; None: forgotten."""

CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["licence", "gpu"]),
        st.sampled_from(["team", "other"]),
        st.none() | st.integers(0, 5),
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("class_name", "units", "woken"),
    [("licence", 5, []), ("licence", 6, []), ("licence", 4, ["licence"]), ("other", 5, ["licence"])],
    ids=["as_before", "more", "less", "of_another_class"],
)
def test_whoever_waits_hears_when_a_claim_counts_for_less(class_name: str, units: int, woken: list[str]) -> None:
    """The units of a restored allocation may be known only after its class has been read."""
    heard: list[Topic] = []
    limits = Limits(heard.append)
    limits.count("held", "licence", "team", 5)
    limits.count("held", class_name, "team", units)
    assert heard == [topic(name, "team") for name in woken]


@settings(max_examples=40, deadline=None)
@given(CHANGES, st.integers(0, 12), st.integers(0, 4))
def test_there_is_room_exactly_if_the_latest_counts_leave_it(
    changes: list[Change], most_units: int, most_claims: int
) -> None:
    limits, known = Limits(), dict[str, Change]()
    for change in changes:
        uid, class_name, namespace, units = change
        if units is None:
            limits.forget(uid)
            known.pop(uid, None)
        else:
            limits.count(uid, class_name, namespace, units)
            known[uid] = change
    held = [units for _, class_name, namespace, units in known.values() if (class_name, namespace) == HERE]
    room = len(held) + 1 <= most_claims and sum(units or 0 for units in held) + 2 <= most_units
    class_ = limited({"claims": most_claims, "units": most_units})
    assert (limits.excess(class_, "team", {"new": 2}) == "") == room


HERE = ("licence", "team")
