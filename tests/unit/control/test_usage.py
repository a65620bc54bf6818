"""What each node's pods use, kept up to date pod by pod."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.control.caches.usage import Usage


def test_a_pod_counts_for_one_node_with_what_was_said_last() -> None:
    usage = Usage()
    usage.put("p", "node-1", {"cpu": 500})
    usage.put("p", "node-2", {"cpu": 700})
    assert (usage.pods("node-1"), dict(usage.used("node-1"))) == (0, {})
    assert (usage.pods("node-2"), dict(usage.used("node-2"))) == (1, {"cpu": 700})
    assert usage.node_of("p") == "node-2"


def test_only_a_node_that_a_pod_leaves_has_more_room() -> None:
    heard: list[str] = []
    usage = Usage(heard.append)
    usage.put("p", "node-1", {})
    usage.put("p", "node-1", {"cpu": 500})
    assert heard == []
    usage.put("p", "node-2", {})
    usage.remove("p")
    usage.remove("p")
    assert heard == ["node-1", "node-2"]


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 3))
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["node-1", "node-2"]), AMOUNTS | st.none()))


@settings(max_examples=40, deadline=None)
@given(CHANGES)
def test_sums_are_those_of_the_pods_that_are_there(changes: list[tuple[str, str, dict[str, int] | None]]) -> None:
    usage, there = Usage(), dict[str, tuple[str, dict[str, int]]]()
    for uid, node, amounts in changes:
        if amounts is None:
            usage.remove(uid)
            there.pop(uid, None)
        else:
            usage.put(uid, node, amounts)
            there[uid] = (node, amounts)
    for node in ("node-1", "node-2"):
        here = [amounts for on, amounts in there.values() if on == node]
        total = Counter[str]()
        for amounts in here:
            total.update(amounts)
        assert usage.pods(node) == len(here)
        assert Counter({name: amount for name, amount in usage.used(node).items() if amount}) == +total
