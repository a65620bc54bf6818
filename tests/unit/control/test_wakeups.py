"""A change of a topic is passed on to all who subscribed."""

from collections.abc import Collection

from parley.control.claims.podclaims import NODES
from parley.control.wakeups import Wakeups
from parley.negotiation.waiting import Topic


def test_every_subscriber_hears_of_each_change_in_the_order_of_subscription() -> None:
    heard: list[tuple[str, Topic, Collection[str] | None]] = []
    wakeups = Wakeups()
    wakeups.wake(NODES)
    wakeups.subscribe(lambda topic, nodes: heard.append(("first", topic, nodes)))
    wakeups.subscribe(lambda topic, nodes: heard.append(("second", topic, nodes)))
    wakeups.wake(("class", "gpu"))
    wakeups.wake(NODES, {"node-1"})
    assert heard == [
        ("first", ("class", "gpu"), None),
        ("second", ("class", "gpu"), None),
        ("first", NODES, {"node-1"}),
        ("second", NODES, {"node-1"}),
    ]
