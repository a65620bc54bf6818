"""Pods that were answered count in the scores of those that are answered after them."""

from typing import Any

import pytest
from tests.unit.drivers.test_device import device, slice_of

from parley.drivers.device import DeviceDriver
from parley.kube.cache import Key
from parley.sdk import Request
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.merging import MOST_CLAIMS
from parley.sdk.parameters import RawClaim
from parley.sdk.standalone.expected import ExpectedPods
from parley.sdk.values import PodReference

P, Q, R = (("team", name) for name in "pqr")


def asks(driver: EmbeddedDriver, key: Key, *counts: int, prefer: Any = "Pack") -> Request[Any, Any]:
    pod = PodReference(*key, f"uid-{key[1]}")
    claims = [
        RawClaim(f"c{i}", f"{key[1]}-{i}", key[0], f"c{i}", "gpu", {"count": count}, None, prefer=prefer)
        for i, count in enumerate(counts)
    ]
    return driver.request(pod, claims)


def stocked(**nodes: int) -> EmbeddedDriver:
    driver = DeviceDriver()
    for node, count in nodes.items():
        driver.observe(None, slice_of(node, *(device(f"gpu-{i}") for i in range(count))))
    return EmbeddedDriver(driver)


def test_each_is_expected_on_the_best_node_that_has_room_beside_the_others() -> None:
    driver = stocked(a=1, b=2)
    expected = ExpectedPods(driver, holds=lambda _: False)
    assert expected.scores(P, asks(driver, P, 1), "ab") == {"a": 1.0, "b": 0.5}
    assert expected.scores(Q, asks(driver, Q, 1), "ab") == {"b": 1.0}
    assert expected.scores(R, asks(driver, R, 2), "b") == {}
    assert expected.scores(P, asks(driver, P, 1), "ab") == {"a": 1.0, "b": 1.0}, "it is not expected beside itself"


def test_what_is_expected_counts_where_claims_spread_too() -> None:
    driver = stocked(a=4, b=3)
    expected = ExpectedPods(driver, holds=lambda _: False)
    best = [
        max(found, key=found.__getitem__)
        for key in (P, Q, R)
        if (found := expected.scores(key, asks(driver, key, 1, prefer="Spread"), "ab"))
    ]
    assert sorted(best) == ["a", "a", "b"]


def test_who_holds_something_or_is_gone_is_expected_no_more() -> None:
    driver, held = stocked(a=1, b=2), set[str]()
    expected = ExpectedPods(driver, holds=held.__contains__)
    expected.scores(P, asks(driver, P, 1), "ab")
    held.add("p-0")
    assert expected.scores(Q, asks(driver, Q, 1), "ab") == {"a": 1.0, "b": 0.5}
    for key in (P, Q, Q, R):
        expected.forget(key)
    assert len(expected) == 0
    held.clear()
    assert expected.scores(R, asks(driver, R, 1), "ab") == {"a": 1.0, "b": 0.5}


@pytest.mark.parametrize("more", [0, 1])
def test_where_many_claims_are_expected_a_node_is_left_to_them(more: int) -> None:
    driver = stocked(a=128)
    expected = ExpectedPods(driver, holds=lambda _: False)
    for pod in range(4):
        key = ("team", f"p{pod}")
        expected.scores(key, asks(driver, key, *[1] * (MOST_CLAIMS // 4 - (pod == 0) + more * (pod == 0))), "a")
    assert bool(expected.scores(Q, asks(driver, Q, 1), "a")) is not more
