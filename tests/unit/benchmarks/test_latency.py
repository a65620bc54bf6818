"""Rates and latencies from the moments of creation and binding."""

import pytest
from benchmarks.latency import Times, percentile


def test_the_rate_goes_from_the_first_creation_to_the_last_binding() -> None:
    times = Times(created={"a": 10.0, "b": 10.5}, bound={"b": 11.0, "a": 12.0})
    assert times.pods_per_second() == 1.0


def test_latencies_are_each_pods_own_in_rising_order() -> None:
    times = Times(created={"a": 10.0, "b": 10.5}, bound={"a": 12.0, "b": 11.0})
    assert times.latencies() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 5.0), (0.51, 6.0), (0.99, 10.0), (1.0, 10.0), (0.0, 1.0)], ids=str
)
def test_a_percentile_is_a_value_that_occurred(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 11)], share) == value
