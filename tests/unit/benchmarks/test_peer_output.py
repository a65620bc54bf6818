"""What is read from scheduler_perf's log and from its figures for perf-dash."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from benchmarks.peer_output import Reading, Span, announcement, between, last_binding, throughput

LOG = """\
    executor.go:731: creating 3 pods in namespace "test"
I1124 21:55:21.000000    5199 schedule_one.go:483] "Successfully bound pod to node" pod="init/a" node="a"
I1124 21:55:24.587010    5199 schedule_one.go:483] "Successfully bound pod to node" pod="test/a" node="a"
BenchmarkPerf 	I1124 21:55:29.250000    5199 schedule_one.go:483] "Successfully bound pod to node" pod="test/c"
        I1124 21:55:26.720264    5199 schedule_one.go:483] "Successfully bound pod to node" pod="test/b" node="b"
"""


def moment(second: float) -> float:
    return datetime(2026, 11, 24, 21, 55, tzinfo=UTC).timestamp() + second


def figures(*items: object) -> bytes:
    return json.dumps({"version": "v1", "dataItems": items}).encode()


def test_a_run_lasts_to_the_last_binding_of_the_measured_pods() -> None:
    assert last_binding(LOG, "test", pods=3, year=2026) == moment(29.25)


def test_a_run_begins_where_the_log_announces_its_pods() -> None:
    assert announcement("test", 3) in LOG
    assert announcement("init", 3) not in LOG


def test_a_log_with_too_few_bindings_is_refused_with_the_numbers() -> None:
    cut = LOG[: LOG.rindex("        I1124")]

    with pytest.raises(ValueError, match=r"^the log tells of 2 bindings in namespace 'test' instead of 3$"):
        last_binding(cut, "test", pods=3, year=2026)


def test_the_peers_own_rate_is_the_average_of_its_throughput() -> None:
    labels = {"Name": "BenchmarkPerfScheduling/SchedulingWithResourceClaimTemplate/1000pods_100nodes/test"}
    attempt = {"Metric": "scheduler_scheduling_attempt_duration_seconds", "result": "scheduled"}
    told = figures(
        {"labels": {**labels, **attempt}, "data": {"Average": 4.5}, "unit": "ms"},
        {
            "labels": {**labels, "Metric": "SchedulingThroughput", "result": "not applicable"},
            "data": {"Average": 33.1666, "Perc50": 30.0},
            "unit": "pods/s",
        },
    )

    assert throughput(told) == 33.2


@pytest.mark.parametrize(
    "item",
    [
        {"labels": {"Name": "test"}, "data": None, "unit": ""},
        {"labels": {"Name": "test", "Metric": "SchedulingThroughput"}, "data": None, "unit": ""},
    ],
)
def test_pods_that_were_bound_within_a_second_leave_no_rate(item: object) -> None:
    assert throughput(figures(item)) is None


def test_what_is_no_file_of_figures_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="dataItems"):
        throughput(b'{"version": "v1"}')


def test_cpu_time_is_that_of_the_measured_time_only() -> None:
    readings = [Reading(0, 0, 0), Reading(10, 4, 10), Reading(20, 14, 30), Reading(30, 15, 31)]

    spent = between(readings, Span(5, 25))

    assert (spent.moment, spent.used, spent.busy) == (20, 12.5, 25.5)


def test_readings_that_do_not_reach_to_the_end_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^no readings around 1970-01-01T00:00:12\+00:00: was the clock set\?$"):
        between([Reading(0, 0, 0), Reading(10, 4, 10)], Span(5, 12))
