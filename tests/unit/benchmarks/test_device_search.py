"""The questions are hard ones that the driver answers, and a result says what was asked."""

import pytest
from benchmarks import device_search
from benchmarks.device_search import CASES


@pytest.mark.parametrize("name", CASES)
def test_a_result_says_what_was_asked(name: str) -> None:
    result = device_search.measure(name, nodes=2, repeats=1)
    claims, devices, _ = CASES[name]
    assert (result.workload, result.nodes, result.asked) == (f"device-search-{name}", 2, 2)
    assert (result.claims, result.devices) == (len(claims), devices + 1)
    assert result.longest_ms > 0
