"""What each node's pods use, kept up to date pod by pod."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

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
    assert not usage.are_leaving("node-1", below=6)
    usage.put("p", Share("node-1", {}, priority=5, leaving=True))
    assert usage.are_leaving("node-1", below=6)
    assert not usage.are_leaving("node-1", below=5)
    assert not usage.are_leaving("node-2", below=6)
    usage.remove("p")
    assert not usage.are_leaving("node-1", below=6)


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
        assert +Counter(usage.used(node)) == total(here)
        for priority in (-1, 0, 1):
            of_priority = [share for share in here if share.priority == priority]
            found = usage.by_priority(node).get(priority)
            assert (found.pods if found else 0) == len(of_priority)
            assert +Counter(dict(found.amounts) if found else {}) == total(of_priority)
            leaving = any(share.leaving and share.priority < priority for share in here)
            assert usage.are_leaving(node, priority) == leaving
    for priority in (-1, 0, 1, 2):
        assert usage.any_below(priority) == any(share.priority < priority for share in there.values())


def total(shares: list[Share]) -> Counter[str]:
    amounts = Counter[str]()
    for share in shares:
        amounts.update(share.amounts)
    return +amounts
