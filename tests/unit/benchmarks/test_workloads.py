"""The workloads ask for what the nodes have, and for what the device driver understands."""

import re

import msgspec
import pytest
from benchmarks import workloads
from benchmarks.workloads import WORKLOADS, Workload

from parley.api.builtin import Pod, ResourceSlice
from parley.api.models import ResourceClaimTemplate, ResourceClass
from parley.drivers.device import DeviceDriver, DeviceParameters
from parley.sdk.testing import request


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_has_devices_for_all_its_pods(workload: Workload) -> None:
    assert workload.pods * workload.claims <= workload.nodes * workloads.DEVICES_PER_NODE


def test_nodes_are_only_added_from_one_workload_to_the_next() -> None:
    nodes = [workload.nodes for workload in WORKLOADS]
    assert nodes == sorted(nodes)


def test_a_yardstick_runs_before_each_workload_that_is_compared_with_it() -> None:
    for position, workload in enumerate(WORKLOADS):
        before = WORKLOADS[:position]
        assert not workload.claims or any(w.nodes == workload.nodes and not w.claims for w in before)


def test_claims_ask_for_what_the_driver_of_the_class_understands() -> None:
    class_ = ResourceClass.model_validate(workloads.resource_class())
    template = ResourceClaimTemplate.model_validate(workloads.template())
    assert class_.driver_name == DeviceDriver.name
    assert template.spec.spec.resource_class_name == class_.metadata.name
    assert DeviceParameters.model_validate(template.spec.spec.parameters).count == 1


def test_a_pod_uses_each_of_its_claims() -> None:
    pod = msgspec.convert(workloads.pod(7, claims=2), Pod)
    assert pod.metadata.name == "pod-7"
    assert [c.resource_claim_template_name for c in pod.spec.resource_claims] == [workloads.TEMPLATE] * 2


def test_a_node_publishes_the_devices_that_the_driver_finds() -> None:
    driver = DeviceDriver()
    driver.observe(None, msgspec.convert(workloads.resource_slice("node"), ResourceSlice))
    wanted = [{"count": 24, "model": "bench"}, {"count": 24, "model": "bench"}]
    assert driver.viable(request(driver, "pod", *wanted), ["node"])["claim-0"].viable == ("node",)
    # One slice holds at most 64 devices that have taints.
    assert workloads.DEVICES_PER_NODE <= 64


def test_an_unknown_workload_is_refused_by_name() -> None:
    message = "--workload='x' is not known: name one of plain-100nodes, idle-100nodes, "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        workloads.chosen("x")
    assert workloads.chosen(None) == list(WORKLOADS)
