"""What a claim was granted, read from the built-in claim: either way of writing it, and every refusal."""

from typing import Any

import msgspec
import pytest

from parley.api.builtin import BuiltinClaim
from parley_kubelet.handle import Granted, Refused, granted
from parley_kubelet.testing import allocated_status, claim_body, offered_status

DRIVER = "device.parley.dev"


def claim(status: dict[str, Any]) -> BuiltinClaim:
    body = claim_body("training")
    body["metadata"] |= {"namespace": "team", "uid": "u1"}
    return msgspec.convert({**body, "status": status}, BuiltinClaim)


def grant(status: dict[str, Any], *, uid: str = "u1", driver: str = DRIVER, node: str = "n1") -> Granted:
    return granted(claim(status), uid=uid, driver=driver, node=node)


def test_devices_named_by_the_results() -> None:
    found = grant(allocated_status("n1", ["gpu-0", "gpu-1"], shared=True))
    assert [(result.pool, result.device) for result in found.results] == [("n1", "gpu-0"), ("n1", "gpu-1")]
    assert found.devices == ("gpu-0", "gpu-1")
    assert found.shared


def test_devices_found_after_nodes_were_offered() -> None:
    found = grant(offered_status("n1", ["gpu-0", "gpu-1"]))
    assert [(result.pool, result.device) for result in found.results] == [("parley.dev", "negotiated")]
    assert found.devices == ("gpu-0", "gpu-1")
    assert not found.shared


def test_a_placeholder_may_have_its_handle_in_the_allocation() -> None:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["devices"]["results"] = offered_status("n1", [])["allocation"]["devices"]["results"]
    assert grant(status).devices == ("gpu-0",)


def test_results_of_other_drivers_are_left_alone() -> None:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["devices"]["results"].append(
        {"request": "exclusive", "driver": "other.example.com", "pool": "n1", "device": "nic-0"}
    )
    assert grant(status).devices == ("gpu-0",)


def test_a_device_that_is_named_twice_counts_once() -> None:
    assert grant(offered_status("n1", ["gpu-0", "gpu-0"])).devices == ("gpu-0",)


def with_results(pool: str, device: str) -> dict[str, Any]:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["devices"]["results"][0] |= {"pool": pool, "device": device}
    return status


def with_handle(handle: object) -> dict[str, Any]:
    status = offered_status("n1", ["gpu-0"])
    status["devices"][0]["data"] = handle
    return status


@pytest.mark.parametrize(
    ("status", "given", "reason"),
    [
        (
            allocated_status("n1", ["gpu-0"]),
            {"uid": "u0"},
            "claim team/training: uid='u1' is another claim of that name, the pod was given 'u0':"
            " delete the pod, so that it is made again with the new claim",
        ),
        (
            {},
            {},
            "claim team/training: status.allocation is not set: wait until parley-controller has allocated it",
        ),
        (
            allocated_status("n1", ["gpu-0"]),
            {"driver": "fpga.parley.dev"},
            "claim team/training: status.allocation names device.parley.dev, not fpga.parley.dev: start this"
            " plugin with --driver-name of the driver that allocates for the claim's class",
        ),
        (
            offered_status("n1", []),
            {},
            "claim team/training: nodes are offered, but no device of device.parley.dev is allocated yet:"
            " wait until parley-controller has allocated it",
        ),
        (
            allocated_status("n2", ["gpu-0"]),
            {},
            "claim team/training: pool='n2' of device 'gpu-0' is not of this node, 'n1':"
            " delete the pod, so that its claim is negotiated again",
        ),
        (
            with_results("n1", "gpu-7"),
            {},
            "claim team/training: the allocation's results are n1/gpu-7, its handle has n1/gpu-0:"
            " delete the pod, so that its claim is negotiated again",
        ),
        (
            with_handle({"devices": []}),
            {},
            "claim team/training: status.devices.data.devices=[]: Tuple should have at least 1 item after"
            " validation, not 0: run the same version of parley-controller and parley-kubelet",
        ),
        (
            with_handle({"devices": [{"pool": "n1"}]}),
            {},
            "claim team/training: status.devices.data.devices.0.device={'pool': 'n1'}: Field required:"
            " run the same version of parley-controller and parley-kubelet",
        ),
        (
            with_handle("gpu-0"),
            {},
            "claim team/training: status.devices.data='gpu-0': Input should be a valid dictionary or instance of"
            " Handle: run the same version of parley-controller and parley-kubelet",
        ),
    ],
)
def test_a_refusal_names_the_claim_the_fault_and_the_remedy(
    status: dict[str, Any], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refused) as error:
        grant(status, **given)
    assert str(error.value) == reason
