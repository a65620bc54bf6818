"""Allocations that the API would refuse, or from which nothing could be restored: the driver's fault."""

from typing import Any

import pytest

from parley.drivers.device import DeviceDriver
from parley.sdk import Allocation, Device
from parley.sdk.allocation_checks import as_recorded, check_allocations
from parley.sdk.checks import DriverFault
from parley.sdk.testing import request
from parley.sdk.values import Request

WANTED: Request[Any, Any] = request(DeviceDriver(), "p", {"model": "a100"})
SHALLOW, DEEP = 62, 63


def nested(levels: int) -> list[Any]:
    """A list in a list, and so on."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


FAULTY: list[tuple[Any, str]] = [
    ({"data": {}}, "allocated is {'data': {}}; it must be an Allocation"),
    (Allocation(data=[1]), "data is [1]; it must be a mapping"),  # type: ignore[arg-type]
    (Allocation(data={"at": b"x"}), "data can't be recorded as JSON: Type is not JSON serializable: bytes"),
    (Allocation(data={1: "x"}), "data can't be recorded as JSON: Dict key must be str"),  # type: ignore[dict-item]
    (Allocation(data={"tree": nested(DEEP)}), "data nests deeper than 64 levels: make it flatter"),
    (Allocation(data={"tree": nested(500)}), "data can't be recorded as JSON: Recursion limit reached"),
    (
        Allocation(data={"ports": [{"wwn": 2**63}]}),
        "data has 9223372036854775808, which the API server would round: write it as a string",
    ),
    (Allocation((("a", "b"),)), "devices is (('a', 'b'),); it must be a tuple of Device"),  # type: ignore[arg-type]
    (Allocation(Device("a", "b")), "devices is Device(pool='a', device='b'); it must be a tuple of Device"),  # type: ignore[arg-type]
    (Allocation((Device("a..b", "c"),)), "pool name 'a..b' is not made of lower-case DNS subdomains"),
    (Allocation((Device("a" * 254, "c"),)), "pool name of 254 characters; at most 253 are allowed"),
    (Allocation(available_on=("a", "No such")), "available_on has 'No such', which is no name of a node"),
    (Allocation(available_on=("a", 5)), "available_on has 5, which is no name of a node"),  # type: ignore[arg-type]
    (Allocation(available_on=("b", "c")), "available_on has not 'a', the node that was selected"),
    (Allocation(available_on=("a", "")), "available_on has '', which is no name of a node"),
]


@pytest.mark.parametrize(("allocation", "fault"), FAULTY)
def test_it_says_what_is_wrong_with_an_allocation(allocation: Any, fault: str) -> None:
    with pytest.raises(DriverFault) as raised:
        check_allocations("d", WANTED, {"claim-0": allocation}, "a")
    assert str(raised.value) == f"driver d, claim 'claim-0': {fault}"


def test_names_may_be_as_long_and_data_as_deep_as_the_api_allows() -> None:
    longest = Allocation(
        (Device("a" * 253, "b" * 63),), {"tree": nested(SHALLOW), "n": 2**63 - 1}, ("n", "a" * 253)
    )
    check_allocations("d", WANTED, {"claim-0": longest}, "n")


@pytest.mark.parametrize("returned", [None, Allocation(), [Allocation()]])
def test_what_is_no_mapping_is_no_result(returned: Any) -> None:
    with pytest.raises(DriverFault, match="must be a mapping from the names of the request's claims"):
        check_allocations("d", WANTED, returned, "a")


def test_what_is_recorded_is_what_the_api_server_makes_of_it() -> None:
    data: dict[str, Any] = {
        "kept": 0,
        "left": None,
        "in": {"kept": "", "left": None},
        "list": [None, {"left": None}, ({},)],
    }
    (recorded,) = as_recorded(WANTED, {"claim-0": Allocation(data=data)}).values()
    assert recorded.data == {"kept": 0, "in": {"kept": ""}, "list": [None, {}, [{}]]}
