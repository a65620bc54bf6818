"""What is asked of the extender is what a scheduler asks, and pods come to the scheduler that is measured."""

import orjson
import pytest
from benchmarks.filters import cases, question
from benchmarks.objects import DEVICE, pod
from benchmarks.schedulers import BARE, EXTENDER
from benchmarks.workloads import WORKLOADS, Workload

from parley.api.resources import PODS

NODES = ["fake-0", "fake-1"]


def test_a_question_is_about_a_pod_and_all_nodes() -> None:
    call = orjson.loads(question("one", [DEVICE], NODES))
    asked = PODS.decode(orjson.dumps(call["Pod"]))

    assert (asked.metadata.name, asked.metadata.uid, asked.spec.scheduler_name) == ("one", "one", EXTENDER)
    assert [entry.resource_claim_template_name for entry in asked.spec.resource_claims] == [DEVICE.name]
    assert (call["Nodes"], call["NodeNames"]) == (None, NODES)


@pytest.mark.parametrize(("case", "pods"), [("claims1", 1), ("beside7", 8), ("refused", 40), ("refused-again", 1)])
def test_so_many_pods_are_asked_about_by_turns(case: str, pods: int) -> None:
    asked = cases(NODES)[case]

    bodies = [next(asked)[1] for _ in range(40)]

    assert len({orjson.loads(body)["Pod"]["metadata"]["uid"] for body in bodies}) == pods


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.scheduler], ids=lambda workload: workload.name)
def test_pods_of_the_second_scheduler_are_compared_with_the_same_scheduler_without_parley(
    workload: Workload,
) -> None:
    assert pod(0, workload.asks, workload.scheduler)["spec"]["schedulerName"] == workload.scheduler
    if workload.plain:
        (yardstick,) = (other for other in WORKLOADS if other.name == workload.plain)
        assert (workload.scheduler, yardstick.scheduler) == (EXTENDER, BARE)
