"""The life of a claim's status on the real API server: which steps are allowed, and what refuses the others."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.raw import Refused, raw

from parley.api.resources import CLAIMS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

Status = dict[str, Any]
Step = Callable[[Status], Any]

DRIVER = "device.parley.dev"
POD_A = {"resource": "pods", "name": "a", "uid": "uid-a"}
POD_B = {"resource": "pods", "name": "b", "uid": "uid-b"}
HANDLE: dict[str, Any] = {
    "driverName": DRIVER,
    "devices": [{"pool": "node-1", "device": "gpu-0"}],
    "data": {"devices": [{"pool": "node-1", "device": "gpu-0"}], "shared": False},
}
ALLOCATION = {
    "handles": [HANDLE],
    "availableOnNodes": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]
    },
    "shareable": False,
}
SHAREABLE = {**ALLOCATION, "shareable": True}
ALLOCATED: Status = {"driverName": DRIVER, "allocation": ALLOCATION}
RESERVED: Status = {**ALLOCATED, "reservedFor": [POD_A]}
DEALLOCATING: Status = {**ALLOCATED, "deallocationRequested": True}
CLEARED: Status = {
    "driverName": None,
    "allocation": None,
    "reservedFor": None,
    "deallocationRequested": None,
}
NOT_ALLOCATED = (
    "status.reservedFor: Invalid value: reservedFor must be empty while nothing is allocated: "
    "set allocation in the same write, or clear reservedFor together with it."
)
EXCLUDE = (
    "status.deallocationRequested: Invalid value: deallocationRequested and reservedFor exclude each other: "
    "remove every pod from reservedFor before requesting deallocation, and add none until the driver has "
    "deallocated."
)


@pytest.fixture
def write(installed: Cluster, namespace: str) -> Step:
    """Writes the status of a new claim, as a merge patch."""
    body = {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": "one"},
        "spec": {"resourceClassName": "gpu"},
    }
    raw(installed).post(CLAIMS.path(namespace), body)
    path = CLAIMS.path(namespace, "one", "status")
    return lambda status: raw(installed).patch(path, {"status": status}).get("status")


@pytest.mark.parametrize(
    "steps",
    [
        [RESERVED],
        [RESERVED, {"reservedFor": []}, DEALLOCATING, CLEARED],
        [RESERVED, {"reservedFor": []}, {"reservedFor": [POD_B]}],
        [RESERVED, CLEARED, RESERVED],
        [{**ALLOCATED, "allocation": SHAREABLE}, {"reservedFor": [POD_A, POD_B]}, {"reservedFor": [POD_B]}],
        [RESERVED, {"reservedFor": None, "deallocationRequested": True}],
        [RESERVED, {"allocation": ALLOCATION}],
        [ALLOCATED, CLEARED, {**ALLOCATED, "allocation": SHAREABLE}],
    ],
    ids=[
        "allocated and reserved in one write",
        "used, released, deallocated",
        "used by one pod after the other",
        "taken back and allocated anew",
        "shared by two pods",
        "released and deallocation requested in one write",
        "the same allocation written twice",
        "cleared, then another allocation",
    ],
)
def test_allowed(write: Step, steps: list[Status]) -> None:
    for step in steps:
        after = write(step)
        for field, value in step.items():
            assert after.get(field) == value


@pytest.mark.parametrize(
    ("before", "step", "message"),
    [
        (
            {},
            {"allocation": ALLOCATION},
            "status.driverName: Invalid value: driverName is required while allocation is set: "
            "name the driver that allocated.",
        ),
        (
            ALLOCATED,
            {"driverName": None},
            "status.driverName: Invalid value: driverName is required while allocation is set: "
            "name the driver that allocated.",
        ),
        ({}, {"reservedFor": [POD_A]}, NOT_ALLOCATED),
        (RESERVED, {"allocation": None, "driverName": None}, NOT_ALLOCATED),
        (
            RESERVED,
            {"reservedFor": [POD_A, POD_B]},
            "status.reservedFor: Invalid value: reservedFor can hold one pod only, because allocation.shareable "
            "is not true: remove the other pod first, or use a ResourceClass that is shareable.",
        ),
        (
            ALLOCATED,
            {"allocation": SHAREABLE},
            "status.allocation: Invalid value: allocation cannot be changed once it is set: "
            "clear it, then set the new one.",
        ),
        (
            ALLOCATED,
            {"allocation": {**ALLOCATION, "handles": [{**HANDLE, "data": {"shared": True}}]}},
            "status.allocation: Invalid value: allocation cannot be changed once it is set: "
            "clear it, then set the new one.",
        ),
        (
            {},
            {"deallocationRequested": True},
            "status.deallocationRequested: Invalid value: deallocationRequested must be left out while nothing is "
            "allocated: clear it together with allocation.",
        ),
        (
            DEALLOCATING,
            {"allocation": None},
            "status.deallocationRequested: Invalid value: deallocationRequested must be left out while nothing is "
            "allocated: clear it together with allocation.",
        ),
        (RESERVED, {"deallocationRequested": True}, EXCLUDE),
        (DEALLOCATING, {"reservedFor": [POD_A]}, EXCLUDE),
        (
            DEALLOCATING,
            {"deallocationRequested": False},
            "status.deallocationRequested: Invalid value: deallocationRequested can be cleared only together with "
            "allocation: the driver clears both in one write.",
        ),
        (
            ALLOCATED,
            {"reservedFor": [POD_A, POD_A]},
            'status.reservedFor[1]: Duplicate value: {"uid":"uid-a"}',
        ),
        (
            {},
            {"driverName": DRIVER, "allocation": {"handles": [{"driverName": "GPU"}]}},
            'status.allocation.handles[0].driverName: Invalid value: "GPU"',
        ),
        (
            {},
            {
                "driverName": DRIVER,
                "allocation": {
                    "handles": [{"driverName": DRIVER, "devices": [{"pool": "p", "device": "GPU-0_1"}]}]
                },
            },
            'status.allocation.handles[0].devices[0].device: Invalid value: "GPU-0_1"',
        ),
    ],
    ids=[
        "an allocation without its driver",
        "the driver's name removed from an allocation",
        "a reservation without an allocation",
        "an allocation cleared under its user",
        "a second pod on an exclusive allocation",
        "an allocation made shareable",
        "a handle's data changed",
        "deallocation requested of nothing",
        "an allocation cleared without the request",
        "deallocation requested under a user",
        "a new user while deallocating",
        "the request withdrawn",
        "one pod reserved twice",
        "a handle of a driver that cannot be",
        "a device whose name the built-in claim would refuse",
    ],
)
def test_refused(write: Step, before: Status, step: Status, message: str) -> None:
    if before:
        write(before)

    with pytest.raises(Refused) as refused:
        write(step)

    assert message in str(refused.value)


def test_a_claim_that_is_being_deleted_gets_no_new_user(installed: Cluster, namespace: str, write: Step) -> None:
    path = CLAIMS.path(namespace, "one")
    raw(installed).patch(path, {"metadata": {"finalizers": ["parley.dev/in-use"]}})
    write({**ALLOCATED, "allocation": SHAREABLE, "reservedFor": [POD_A]})
    raw(installed).request("DELETE", path)

    with pytest.raises(Refused) as refused:
        write({"reservedFor": [POD_A, POD_B]})

    assert (
        f"ResourceClaim {namespace}/one is being deleted, and status.reservedFor cannot get new pods: "
        "use another claim." in str(refused.value)
    )
    assert write({"reservedFor": []})["reservedFor"] == []
    raw(installed).patch(path, {"metadata": {"finalizers": None}})
