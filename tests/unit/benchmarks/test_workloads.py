"""The workloads ask for what the nodes have, and are compared with what ran before them."""

import msgspec
import pytest
from benchmarks.measurement import Result, compared
from benchmarks.objects import DEVICE, DEVICES_PER_NODE
from benchmarks.workloads import WORKLOADS, Workload

by_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def result(name: str, pods_per_second: float) -> Result:
    numbers = {field: 0 for field in Result.__struct_fields__ if field not in ("checkout", "of_plain", "of_empty")}
    words = {"workload": name, "pods_per_second": pods_per_second, "cpu_s": {}}
    return msgspec.convert({**numbers, **words, "writes": {}, "end_of_life_writes": {}}, Result)


@by_workload
def test_every_workload_has_devices_for_all_its_pods(workload: Workload) -> None:
    devices = workload.asks.count(DEVICE) * workload.pods
    assert devices <= (workload.nodes - workload.taken) * DEVICES_PER_NODE


def test_on_full_nodes_nine_tenths_of_the_devices_are_taken() -> None:
    (full,) = [workload for workload in WORKLOADS if workload.taken]
    assert full.taken / full.nodes == 0.9


def test_nodes_are_only_added_from_one_workload_to_the_next() -> None:
    nodes = [workload.nodes for workload in WORKLOADS]
    assert nodes == sorted(nodes)


@by_workload
def test_what_a_workload_is_compared_with_runs_before_it_and_is_as_large(workload: Workload) -> None:
    before = {other.name: other for other in WORKLOADS[: WORKLOADS.index(workload)]}
    for name in filter(None, (workload.plain, workload.empty)):
        assert (before[name].nodes, before[name].pods) == (workload.nodes, workload.pods)
    assert not workload.plain or not before[workload.plain].asks
    if workload.empty:
        assert before[workload.empty].asks == workload.asks


def test_a_result_is_told_as_a_share_of_those_that_it_is_compared_with() -> None:
    workload = Workload("full", nodes=1, pods=1, plain="plain", empty="empty")
    earlier = {"plain": result("plain", 200), "empty": result("empty", 100), "other": result("other", 10)}
    shares = compared(workload, result("full", 80), earlier)
    assert (shares.of_plain, shares.of_empty) == (0.4, 0.8)


def test_a_result_without_its_yardstick_in_the_same_run_is_no_share_of_anything() -> None:
    workload = Workload("full", nodes=1, pods=1, plain="plain", empty="empty")
    shares = compared(workload, result("full", 80), {})
    assert (shares.of_plain, shares.of_empty) == (None, None)
