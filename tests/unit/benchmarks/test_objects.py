"""The objects of the benchmark are what drivers and API server understand."""

from typing import Any

import msgspec
import orjson
import pytest
from benchmarks import objects
from benchmarks.objects import ASKS, DEVICE, NEVER, OUTSIDE, TOKENS, Ask
from benchmarks.standalone import Outside

from parley.api.builtin import Pod, ResourceSlice
from parley.api.models import ResourceClaimTemplate, ResourceClass
from parley.api.resources import BUILTIN_CLAIMS
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Device, Driver, Held
from parley.sdk.testing import request

DRIVERS: dict[str, Driver[Any, Any]] = {
    driver.name: driver for driver in (DeviceDriver(), TokensDriver(), Outside())
}


def device_driver() -> DeviceDriver:
    driver = DeviceDriver()
    driver.observe(None, msgspec.convert(objects.resource_slice("node"), ResourceSlice))
    return driver


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_claims_and_classes_are_what_the_driver_of_the_class_understands(ask: Ask) -> None:
    class_ = ResourceClass.model_validate(objects.resource_class(ask))
    template = ResourceClaimTemplate.model_validate(objects.template(ask))
    driver = DRIVERS[class_.driver_name]
    assert template.spec.spec.resource_class_name == class_.metadata.name
    driver.parameters.model_validate(template.spec.spec.parameters)
    driver.class_parameters.model_validate(class_.parameters or {})


def test_the_driver_outside_has_a_name_that_no_driver_of_the_controller_has() -> None:
    assert Outside.name not in (DeviceDriver.name, TokensDriver.name)


def test_a_pod_uses_each_of_its_claims() -> None:
    pod = msgspec.convert(objects.pod(7, [DEVICE, TOKENS, TOKENS]), Pod)
    assert pod.metadata.name == "pod-7"
    entries = [(c.name, c.resource_claim_template_name) for c in pod.spec.resource_claims]
    assert entries == [("device-0", "device"), ("tokens-1", "tokens"), ("tokens-2", "tokens")]


def test_a_plain_pod_has_no_claims() -> None:
    assert "resourceClaims" not in objects.pod(0, [])["spec"]


def test_a_node_publishes_the_devices_that_the_driver_finds() -> None:
    driver = device_driver()
    wanted = [{**DEVICE.parameters, "count": 24}, {**DEVICE.parameters, "count": 24}]
    assert driver.viable(request(driver, "pod", *wanted), ["node"])["claim-0"].viable == ("node",)
    # One slice holds at most 64 devices that have taints.
    assert objects.DEVICES_PER_NODE <= 64


def test_pods_that_shall_wait_want_what_no_node_has() -> None:
    driver = device_driver()
    assert driver.viable(request(driver, "pod", NEVER.parameters), ["node"])["claim-0"].viable == ()


def test_takers_leave_no_device_of_their_node() -> None:
    driver = device_driver()
    for number, body in enumerate(objects.takers("node")):
        allocation = BUILTIN_CLAIMS.decode(orjson.dumps(body)).status.allocation
        assert allocation is not None
        results = allocation.devices.results
        assert len(results) == body["spec"]["devices"]["requests"][0]["exactly"]["count"] <= 32
        devices = tuple(Device(result.pool, result.device) for result in results)
        driver.restore(Held(uid=f"uid-{number}", node="node", devices=devices, data=None))
    assert driver.viable(request(driver, "pod", DEVICE.parameters), ["node"])["claim-0"].viable == ()


def test_tokens_are_enough_for_any_workload() -> None:
    driver = Outside()
    asked = request(driver, "pod", OUTSIDE.parameters, class_parameters=OUTSIDE.class_["parameters"])
    assert driver.viable(asked, ["node"])["claim-0"].viable == ("node",)
