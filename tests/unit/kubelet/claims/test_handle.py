"""What a claim was granted, read from the built-in claim: either way of writing it, and every refusal."""

from typing import Any

import orjson
import pytest

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS
from parley_kubelet.claims.handle import NodeAllocation, node_allocation, selects_nodes_by_labels
from parley_kubelet.hooks import DeviceName, Refused
from parley_kubelet.testing import allocated_status, claim_body, offered_status

DRIVER = "device.parley.dev"


def claim(status: dict[str, Any], *requests: dict[str, Any]) -> BuiltinClaim:
    body = claim_body("training")
    body["metadata"] |= {"namespace": "team", "uid": "u1"}
    if requests:
        body["spec"]["devices"]["requests"] = requests
    return BUILTIN_CLAIMS.decode(orjson.dumps({**body, "status": status}))


def grant(status: dict[str, Any], *, uid: str = "u1", driver: str = DRIVER, node: str = "n1") -> NodeAllocation:
    return node_allocation(claim(status), uid=uid, driver=driver, node=node)


def test_devices_named_by_the_results() -> None:
    found = grant(allocated_status("n1", ["gpu-0", "gpu-1"], shared=True))
    assert [(result.pool, result.device) for result in found.results] == [("n1", "gpu-0"), ("n1", "gpu-1")]
    assert found.devices == (DeviceName("n1", "gpu-0"), DeviceName("n1", "gpu-1"))
    assert found.handle["shared"]


def test_devices_found_after_nodes_were_offered() -> None:
    found = grant(offered_status("n1", ["gpu-0", "gpu-1"]))
    assert [(result.pool, result.device) for result in found.results] == [("n1", "gpu-0"), ("n1", "gpu-1")]
    assert found.devices == (DeviceName("n1", "gpu-0"), DeviceName("n1", "gpu-1"))
    assert not found.handle["shared"]


def test_an_allocation_without_any_device() -> None:
    found = grant(allocated_status("n1", [], data={"folder": "a"}))
    assert [(result.request, result.pool, result.device) for result in found.results] == [
        ("exclusive", "parley.dev", "negotiated")
    ]
    assert found.devices == ()
    assert found.handle == {"folder": "a"}


@pytest.mark.parametrize("listed", ["gpu-0", ["gpu-0"], [{"pool": "n1"}], [{"pool": 1, "device": "gpu-0"}]])
def test_a_list_of_devices_that_is_of_another_kind_names_none(listed: object) -> None:
    assert grant(allocated_status("n1", [], data={"devices": listed})).devices == ()


def test_an_allocation_that_can_be_used_everywhere() -> None:
    status = allocated_status("n1", ["gpu-0"])
    del status["allocation"]["nodeSelector"]
    assert grant(status, node="n7").devices == (DeviceName("n1", "gpu-0"),)


def test_a_placeholder_may_have_its_handle_in_the_allocation() -> None:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["devices"]["results"] = offered_status("n1", [])["allocation"]["devices"]["results"]
    assert grant(status).devices == (DeviceName("n1", "gpu-0"),)


def test_results_of_other_drivers_are_left_alone() -> None:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["devices"]["results"].append(
        {"request": "exclusive", "driver": "other.example.com", "pool": "n1", "device": "nic-0"}
    )
    assert grant(status).devices == (DeviceName("n1", "gpu-0"),)


def test_a_device_that_is_named_twice_counts_once() -> None:
    assert grant(offered_status("n1", ["gpu-0", "gpu-0"])).devices == (DeviceName("n1", "gpu-0"),)


def with_selector(*terms: dict[str, Any]) -> dict[str, Any]:
    status = allocated_status("n1", ["gpu-0"])
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": list(terms)}
    return status


def named(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


IN_ZONE_A = {"matchExpressions": [named("zone", "In", "a")]}


@pytest.mark.parametrize(
    ("terms", "labels", "holds"),
    [
        ([IN_ZONE_A], {"zone": "a", "rack": "1"}, True),
        ([IN_ZONE_A], {"zone": "b"}, False),
        ([IN_ZONE_A], {}, False),
        ([IN_ZONE_A, {"matchFields": [named("metadata.name", "In", "n1")]}], {"zone": "b"}, True),
        ([{**IN_ZONE_A, "matchFields": [named("metadata.name", "In", "n2")]}], {"zone": "a"}, False),
    ],
)
def test_an_allocation_by_labels_is_for_nodes_that_have_them(
    terms: list[dict[str, Any]], labels: dict[str, str], holds: bool
) -> None:
    one = claim(with_selector(*terms))
    assert selects_nodes_by_labels(one)
    if holds:
        assert node_allocation(one, uid="u1", driver=DRIVER, node="n1", labels=labels).devices
        return
    with pytest.raises(Refused) as refused:
        node_allocation(one, uid="u1", driver=DRIVER, node="n1", labels=labels)
    assert str(refused.value) == (
        "claim team/training: status.allocation.nodeSelector selects nodes by labels that node 'n1' does not have:"
        " delete the pod, so that a scheduler places it where the claim is"
    )


def test_an_allocation_by_names_does_not_go_by_labels() -> None:
    assert not selects_nodes_by_labels(claim(allocated_status("n1", ["gpu-0"])))
    assert not selects_nodes_by_labels(claim({}))


ANY_DEVICE = {"deviceClassName": "any-device", "tolerations": [{"operator": "Exists"}]}
LIKE_A_MIRROR = {"name": "exclusive", "exactly": {"deviceClassName": "being-negotiated.parley.dev"}}


@pytest.mark.parametrize(
    "requests",
    [
        [{"name": "exclusive", "exactly": ANY_DEVICE}],
        [{"name": "exclusive", "firstAvailable": [{"name": "exclusive", **ANY_DEVICE}]}],
        [{"name": "mine", "exactly": ANY_DEVICE}, LIKE_A_MIRROR],
    ],
)
def test_what_the_user_of_an_ordinary_claim_wrote_is_no_handle(requests: list[dict[str, Any]]) -> None:
    status = allocated_status(
        "n1", ["workspaces"], driver="workspace.parley.dev", data={"workspace": "another-tenants"}
    )
    with pytest.raises(Refused) as error:
        node_allocation(claim(status, *requests), uid="u1", driver="workspace.parley.dev", node="n1")
    assert str(error.value) == (
        "claim team/training: devices of workspace.parley.dev were allocated by ordinary DRA, not by"
        " parley-controller: create a claim of parley.dev with a class of that driver"
    )


@pytest.mark.parametrize(
    ("status", "given", "reason"),
    [
        (
            allocated_status("n1", ["gpu-0"]),
            {"uid": "u0"},
            "claim team/training: uid='u1' is another claim of that name, the pod was given 'u0':"
            " delete the pod, so that it is recreated with the new claim",
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
            "claim team/training: status.allocation.nodeSelector names n2, and this is node 'n1':"
            " delete the pod, so that its claim is negotiated again",
        ),
        (
            with_selector({"matchExpressions": [named("metadata.name", "In", "n1")]}),
            {},
            "claim team/training: status.allocation.nodeSelector names no node by its name, and this is node 'n1':"
            " delete the pod, so that its claim is negotiated again",
        ),
        (
            with_selector(
                {"matchFields": [named("metadata.name", "NotIn", "n1")]},
                {"matchFields": [named("metadata.name", "In", "n3")]},
                {"matchFields": [named("metadata.name", "In", "n1")] * 2},
            ),
            {},
            "claim team/training: status.allocation.nodeSelector names n3, and this is node 'n1':"
            " delete the pod, so that its claim is negotiated again",
        ),
        (
            {**allocated_status("n1", ["gpu-0"]), "reservedFor": []},
            {},
            "claim team/training: status.reservedFor is empty, no pod may use the claim: wait until"
            " parley-controller has reserved it, or delete the pod",
        ),
    ],
)
def test_a_refusal_names_the_claim_the_fault_and_the_remedy(
    status: dict[str, Any], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refused) as error:
        grant(status, **given)
    assert str(error.value) == reason
