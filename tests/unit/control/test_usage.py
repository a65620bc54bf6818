"""What each node's pods use, kept up to date pod by pod."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import peak_bytes

from parley.control.caches.usage import Share, Usage


def test_a_pod_counts_for_one_node_with_what_was_said_last() -> None:
    usage = Usage()
    usage.put("p", Share("node-1", {"cpu": 500}))
    usage.put("p", Share("node-2", {"cpu": 700}))
    assert (usage.pods("node-1"), dict(usage.used("node-1"))) == (0, {})
    assert (usage.pods("node-2"), dict(usage.used("node-2"))) == (1, {"cpu": 700})
    assert usage.node_of("p") == "node-2"


def test_only_a_node_that_a_pod_leaves_has_more_room() -> None:
    heard: list[str] = []
    usage = Usage(heard.append)
    usage.put("p", Share("node-1", {}))
    usage.put("p", Share("node-1", {"cpu": 500}))
    assert heard == []
    usage.put("p", Share("node-2", {}))
    usage.remove("p")
    usage.remove("p")
    assert heard == ["node-1", "node-2"]


def test_pods_of_lower_priority_that_are_being_deleted_are_known() -> None:
    usage = Usage()
    usage.put("p", Share("node-1", {}, priority=5))
    assert not usage.any_terminating("node-1", below=6)
    usage.put("p", Share("node-1", {}, priority=5, terminating=True))
    assert usage.any_terminating("node-1", below=6)
    assert not usage.any_terminating("node-1", below=5)
    assert not usage.any_terminating("node-2", below=6)
    usage.remove("p")
    assert not usage.any_terminating("node-1", below=6)


def test_of_what_pods_requested_that_are_gone_nothing_stays() -> None:
    usage = Usage()
    usage.put("daemon", Share("node-1", {"cpu": 500}))
    usage.put("evil", Share("node-1", {"cpu": 500, "x.y/many": 1000, "x.y/none": 0}))
    assert dict(usage.used("node-1")) == {"cpu": 1000, "x.y/many": 1000}
    usage.remove_terminal("evil")
    assert dict(usage.used("node-1")) == dict(usage.by_priority("node-1")[0].amounts) == {"cpu": 500}


@pytest.mark.parametrize(
    "one_event",
    [
        lambda usage: usage.put("theirs", Share("node-1", {"cpu": 1000})),
        lambda usage: usage.remove_terminal("daemon"),
        lambda usage: usage.without("node-1", ["daemon"], ["cpu"]),
        lambda usage: usage.without("node-1", ["daemon"], ["cpu"], below=0),
    ],
    ids=["comes", "goes", "is left out", "is left out of a priority"],
)
def test_what_others_cost_does_not_grow_with_the_resources_that_one_pod_names(
    one_event: Callable[[Usage], object],
) -> None:
    usage = Usage()
    usage.put("daemon", Share("node-1", {"cpu": 500}))
    usage.put("evil", Share("node-1", {f"x.y/{i}": 1000 for i in range(16_000)}))
    assert peak_bytes(lambda: one_event(usage)) < 10_000, "a copy of all names takes many times as much"


SHARES = st.builds(
    Share,
    st.sampled_from(["node-1", "node-2"]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 3)),
    st.integers(-1, 1),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), SHARES | st.none())))
def test_sums_are_those_of_the_pods_that_are_there(changes: list[tuple[str, Share | None]]) -> None:
    usage, there = Usage(), dict[str, Share]()
    for uid, share in changes:
        if share is None:
            usage.remove(uid)
            there.pop(uid, None)
        else:
            usage.put(uid, share)
            there[uid] = share
    for node in ("node-1", "node-2"):
        here = [share for share in there.values() if share.node == node]
        assert usage.pods(node) == len(here)
        assert dict(usage.used(node)) == total(here)
        for below in (None, 0, 1):
            staying = [
                share
                for uid, share in there.items()
                if share.node == node and uid not in "ab" and (below is None or share.priority >= below)
            ]
            left = {name: total(staying)[name] for name in ("cpu", "memory")}
            assert usage.without(node, "ab", left, below) == (left, len(staying))
        for priority in (-1, 0, 1):
            of_priority = [share for share in here if share.priority == priority]
            found = usage.by_priority(node).get(priority)
            assert (found.pods if found else 0) == len(of_priority)
            assert (dict(found.amounts) if found else {}) == total(of_priority)
            leaving = any(share.terminating and share.priority < priority for share in here)
            assert usage.any_terminating(node, priority) == leaving
    for priority in (-1, 0, 1, 2):
        assert usage.any_below(priority) == any(share.priority < priority for share in there.values())


def total(shares: list[Share]) -> Counter[str]:
    amounts = Counter[str]()
    for share in shares:
        amounts.update(share.amounts)
    return +amounts
