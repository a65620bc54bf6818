"""The record of an allocation: as it is written, as it is read, whose it is, and when it has to go."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parley.api import models
from parley.api.builtin import Node, NodeSelector, ObjectMeta
from parley.api.models import ResourceClaim
from parley.sdk import Allocation, Device, Held, NodeLabels, Reserve
from parley.sdk.recorded import (
    allocation_record,
    driver_of_record,
    held_as_recorded,
    must_be_deallocated,
    read_allocation,
    recorded,
)

DRIVER = "disks.example.com"
NODES = ("node-1", "node-2", "node-3")
USER = {"name": "p", "uid": "uid-p"}
ALLOCATION: dict[str, Any] = {"handles": [{"driverName": "outside.example.com"}]}

devices = st.builds(Device, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]))
allocations = st.builds(
    Allocation,
    devices=st.lists(devices, max_size=32).map(tuple),
    data=st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    available_on=st.none()
    | st.lists(st.sampled_from(NODES), unique=True, min_size=2).map(tuple)
    | st.just(())
    | st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from(["", "a"]), min_size=1).map(NodeLabels),
)
reserves = st.builds(
    Reserve, st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "250m", "2Gi"])), st.just(3)
)


def a_claim(status: dict[str, Any], **meta: Any) -> ResourceClaim:
    metadata = {"name": "c", "namespace": "team", "uid": "uid-c", **meta}
    return ResourceClaim.model_validate(
        {"metadata": metadata, "spec": {"resourceClassName": "disk"}, "status": status}
    )


@given(allocations, st.sampled_from(NODES))
def test_what_is_written_is_read_back(allocation: Allocation, node: str) -> None:
    on = allocation.available_on
    assume(not on or not isinstance(on, tuple) or node in on)
    record = models.Allocation.model_validate(allocation_record(DRIVER, allocation, node, shareable=False))
    where, found = read_allocation(record, ())
    if isinstance(on, tuple):
        assert where == node, "the node that it was allocated for, of however many"
        assert sorted(found.available_on) == sorted(on)  # type: ignore[arg-type]
    else:
        assert (where, found.available_on) == ("", on)
    assert replace(found, available_on=on) == allocation


@given(reserves)
def test_what_is_reserved_is_read_back(reserve: Reserve) -> None:
    allocation = Allocation(reserve=reserve)
    record = models.Allocation.model_validate(allocation_record(DRIVER, allocation, "a", shareable=False))
    assert read_allocation(record, ()) == ("a", allocation)


@pytest.mark.parametrize("reserve", [{"amounts": {"cpu": "much"}}, {"amounts": {"cpu": "0"}}, {}])
def test_a_reservation_that_is_none_reserves_nothing(reserve: dict[str, Any]) -> None:
    body = {**allocation_record(DRIVER, Allocation(), "a", shareable=False), "reserve": reserve}
    assert read_allocation(models.Allocation.model_validate(body), ()) == ("a", Allocation())


def test_a_record_that_selects_nodes_by_labels_is_on_the_one_that_matches_if_there_is_one_alone() -> None:
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}]
    record = models.Allocation.model_validate({"availableOnNodes": {"nodeSelectorTerms": terms}})
    nodes = [Node(ObjectMeta(name=name, labels={"rack": rack})) for name, rack in (("a", "2"), ("b", "1"))]
    found = Allocation(available_on=NodeLabels({"rack": "1"}))
    assert read_allocation(record, nodes) == ("b", found)
    assert read_allocation(record, [*nodes, Node(ObjectMeta(name="c", labels={"rack": "1"}))]) == ("", found)


def test_any_other_selector_of_a_record_is_kept_as_it_is() -> None:
    terms = [{"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["1", "2"]}]}]
    record = models.Allocation.model_validate({"availableOnNodes": {"nodeSelectorTerms": terms}})
    node, found = read_allocation(record, ())
    assert node == ""
    assert found.available_on == msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)


def test_records_of_names_are_what_they_were() -> None:
    def term(name: str) -> dict[str, Any]:
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}

    def where(allocation: Allocation) -> Any:
        return allocation_record(DRIVER, allocation, "a", shareable=False).get("availableOnNodes")

    assert where(Allocation()) == {"nodeSelectorTerms": [term("a")]}
    assert where(Allocation(available_on=("b", "c"))) == {"nodeSelectorTerms": [term("b"), term("c")]}
    assert where(Allocation(available_on=None)) is None


def test_a_claim_without_an_allocation_has_no_record() -> None:
    assert recorded(a_claim({}), ()) is None


@pytest.mark.parametrize(
    ("status", "driver"),
    [
        ({}, ""),
        ({"driverName": "left.example.com"}, ""),
        ({"driverName": "told.example.com", "allocation": {}}, "told.example.com"),
        ({"driverName": "told.example.com", "allocation": ALLOCATION}, "outside.example.com"),
    ],
    ids=["nothing", "a-name-alone", "no-handle", "a-handle"],
)
def test_who_allocated_by_the_record(status: dict[str, Any], driver: str) -> None:
    assert driver_of_record(a_claim(status)) == driver


@pytest.mark.parametrize(
    ("status", "deleted", "expected"),
    [
        ({}, False, False),
        ({"deallocationRequested": True}, False, True),
        ({}, True, True),
        ({"reservedFor": [USER]}, True, False),
        ({"reservedFor": [USER]}, False, False),
    ],
    ids=["held", "requested", "deleted", "deleted-in-use", "in-use"],
)
def test_when_the_driver_has_to_deallocate(status: dict[str, Any], deleted: bool, expected: bool) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    whole = {"driverName": DRIVER, "allocation": ALLOCATION, **status}
    assert must_be_deallocated(a_claim(whole, **meta)) is expected


def test_an_allocation_of_no_node_is_held_nowhere_in_particular() -> None:
    allocation = Allocation((Device("a", "x"),), {"size": 1}, None)
    assert held_as_recorded("uid-c", "", allocation) == Held("uid-c", None, (Device("a", "x"),), {"size": 1})
    assert held_as_recorded("uid-c", "node-1", allocation).node == "node-1"
