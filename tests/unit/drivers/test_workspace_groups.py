"""Groups of workspaces: all members are on the node, or in the zone, of the first."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.drivers.workspaces import asks, disk, stocked

from parley.api.builtin import Node, ObjectMeta
from parley.drivers.workspace import NoRoom
from parley.drivers.workspace_parameters import WorkspaceParameters
from parley.sdk import Held, PodReference, Request


def grouped(pod: str, group: str = "build", namespace: str = "default", **class_: Any) -> Request[Any, Any]:
    asked = asks(pod, {"size": "1Gi", "group": group}, **class_)
    return replace(asked, pod=PodReference(namespace, pod, f"uid-of-{pod}"))


async def test_a_group_goes_where_its_first_member_is() -> None:
    driver = stocked()
    assert driver.viable(grouped("p"), ("a", "b"))["claim-0"].viable == ("a", "b")
    found = await driver.allocate(grouped("p"), "b")
    answer = driver.viable(grouped("q"), ("a",))["claim-0"]
    assert (answer.viable, answer.alternatives) == ((), ("b",))
    assert answer.reasons == {"a": "group build is on node b"}
    with pytest.raises(NoRoom, match="node a: group build is on node b"):
        await driver.allocate(grouped("q"), "a")
    assert driver.viable(grouped("q", namespace="other"), ("a",))["claim-0"].viable == ("a",)
    assert list(driver.fullest(grouped("q"))) == ["b"]
    assert driver.viable_without(grouped("q"), "a", {"p-claim-0"})
    assert not driver.viable_without(grouped("q"), "a", {"another"})
    await driver.allocate(grouped("q"), "b")
    for uid in ("p-claim-0", "q-claim-0"):
        assert not driver.has_room(grouped("r"), "a")
        await driver.deallocate(uid)
    assert driver.has_room(grouped("r"), "a")
    assert not driver.is_local(Held("p-claim-0", "b", (), found["claim-0"].data))


async def test_a_restored_member_decides_for_its_group_too() -> None:
    driver, again = stocked(), stocked()
    found = (await driver.allocate(grouped("p"), "b"))["claim-0"]
    again.restore(Held("p-claim-0", "b", found.devices, found.data))
    assert again.viable(grouped("q"), ("a", "b"))["claim-0"].viable == ("b",)


async def test_a_class_may_keep_groups_in_a_zone() -> None:
    driver, zone = stocked(), "topology.kubernetes.io/zone"
    driver.observe(None, disk("c"))
    for name, value in (("a", "east"), ("b", "west"), ("c", "east")):
        assert driver.observe(None, Node(metadata=ObjectMeta(name=name, labels={zone: value})))
    await driver.allocate(grouped("p", topologyKey=zone), "a")
    assert driver.viable(grouped("q", topologyKey=zone), ("a", "b", "c"))["claim-0"].viable == ("a", "c")


def test_requests_of_groups_are_answered_alike_within_a_namespace_only() -> None:
    driver = stocked()
    assert driver.alike(grouped("p")) == driver.alike(grouped("q"))
    assert driver.alike(grouped("p")) != driver.alike(grouped("p", namespace="other"))
    assert driver.alike(asks("p", {})) == driver.alike(replace(asks("p", {}), pod=PodReference("other", "p", "u")))


@pytest.mark.parametrize("group", ["", "-a", "a b", "a" * 64, "a/b"])
def test_names_of_groups_are_those_of_label_values(group: str) -> None:
    with pytest.raises(ValidationError, match="group"):
        WorkspaceParameters.model_validate({"group": group})
