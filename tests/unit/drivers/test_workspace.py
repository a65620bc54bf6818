"""The workspace driver: its promises, and that a disk is never promised twice."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from tests.support.effort import calls
from tests.unit.drivers.workspaces import GI, asks, disk, enforcing, stocked

from parley.api.builtin import ObjectMeta, ResourceSlice
from parley.drivers.workspace import NoRoom, WorkspaceDriver
from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.sdk import Capacity, ClaimRequest, ClassOnNodes, Held, PodReference, Request, Reserve
from parley.sdk.testing import Scenario, check_driver


class WithPrefix(str):
    """Equal to what begins so."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str(other).startswith(str(self))


async def test_it_keeps_its_promises() -> None:
    await check_driver(
        Scenario(
            make=stocked,
            nodes=("a", "b", "c"),
            requests=(
                asks("small", {"size": "1Gi"}),
                asks("large", {"size": "5Gi"}),
                asks("two", {"size": "3Gi"}, {"size": "4Gi", "mountPath": "/other"}),
                asks("default", {}, defaultSize="4Gi"),
            ),
        )
    )


def test_a_request_with_many_claims_costs_no_more_than_others_when_it_is_asked_about_again() -> None:
    """It waits, and every pod that ends on any node may have made room for it."""
    driver = stocked()

    def look(of: Request[Any, Any]) -> int:
        return calls(lambda: driver.has_room(of, "b"))

    few, many = (asks("p", *({"mountPath": f"/{i}", "size": "1Mi"} for i in range(n))) for n in (1, 100))
    before, first, again = look(few), look(many), look(many)
    assert before < first
    assert again < 2 * before


async def test_what_is_promised_is_not_promised_again_until_the_claim_ends() -> None:
    driver = stocked()
    for pod in ("p", "q"):
        await driver.allocate(asks(pod, {"size": "4Gi"}), "a")
    third = asks("r", {"size": "4Gi"})
    answer = driver.viable(third, ("a", "b", "c"))["claim-0"]
    assert answer.viable == ("b",)
    assert answer.reasons == {
        "a": "2Gi of 10Gi free for workspaces, 4Gi wanted",
        "c": "has no disk for workspaces: its node plugin publishes none",
    }
    with pytest.raises(NoRoom, match="2Gi of 10Gi free"):
        await driver.allocate(third, "a")
    assert driver.viable_without(third, "a", {"p-claim-0"})
    assert not driver.viable_without(third, "a", {"elsewhere"})
    assert driver.capacity(ClassOnNodes("tested", WorkspaceClass(), ("a", "b"))) == Capacity(14 * 1024, 6 * 1024)
    await driver.deallocate("p-claim-0")
    await driver.allocate(third, "a")


async def test_a_restored_workspace_counts_and_a_damaged_record_does_not() -> None:
    driver, again = stocked(), stocked()
    allocation = (await driver.allocate(asks("p", {"size": "9Gi"}), "a"))["claim-0"]
    again.restore(Held("p-claim-0", "a", allocation.devices, allocation.data))
    again.restore(Held("damaged", "a", allocation.devices, {"bytes": "many"}))
    again.restore(Held("foreign", None, allocation.devices, None))
    for one in (driver, again):
        assert one.viable(asks("q", {"size": "2Gi"}), ("a",))["claim-0"].viable == ()
        assert one.viable(asks("q", {"size": "1Gi"}), ("a",))["claim-0"].viable == ("a",)


async def test_what_is_allocated_again_is_another_directory() -> None:
    """What is removed of the first one on a node that was away must not be the second one's."""
    driver, seen = stocked(), set()
    for _ in range(3):
        seen.add((await driver.allocate(asks("p", {}), "a"))["claim-0"].data["workspace"])
        await driver.deallocate("p-claim-0")
    assert len(seen) == 3


async def test_the_handle_has_what_the_node_needs() -> None:
    named = ClaimRequest("data", "u-1", "build-42.x", "tested", WorkspaceParameters(), WorkspaceClass())
    parameters = WorkspaceParameters(size="1500Mi", mount_path="/work/space")
    generated = ClaimRequest(
        "scratch", "u-2", "p-scratch-x7", "tested", parameters, WorkspaceClass(), generated=True
    )
    found = await stocked().allocate(Request(PodReference("team", "p", "u"), (named, generated)), "a")
    assert dict(found["data"].data) == {
        "workspace": WithPrefix("u-1-"),
        "bytes": GI,
        "mountPath": "/workspace",
        "variable": "WORKSPACE_BUILD_42_X_PATH",
        "generated": False,
        "namespace": "team",
        "claim": "build-42.x",
    }
    assert found["scratch"].data["variable"] == "WORKSPACE_SCRATCH_PATH"
    assert found["scratch"].data["mountPath"] == "/work/space"
    assert found["scratch"].data["generated"] is True


async def test_what_begins_anew_has_another_directory() -> None:
    """Also where a node comes back that has the first one still."""
    claim = ClaimRequest("data", "u-1", "build", "tested", WorkspaceParameters(), WorkspaceClass())
    driver, request = stocked(), Request(PodReference("team", "p", "u"), (claim,))
    names = []
    for _ in range(2):
        names.append((await driver.allocate(request, "a"))["data"].data["workspace"])
        await driver.deallocate("u-1")
    assert names == [WithPrefix("u-1-")] * 2
    assert names[0] != names[1]


async def test_a_claim_may_name_its_variable_and_a_class_the_owner() -> None:
    class_ = WorkspaceClass.model_validate({"owner": {"uid": 1000, "mode": "2750"}})
    parameters = WorkspaceParameters(variable="WORKSPACE_SOURCE_PATH")
    claim = ClaimRequest("data", "u-1", "build-42", "tested", parameters, class_)
    found = await stocked().allocate(Request(PodReference("team", "p", "u"), (claim,)), "a")
    assert found["data"].data["variable"] == "WORKSPACE_SOURCE_PATH"
    assert found["data"].data["owner"] == {"uid": 1000, "gid": 0, "mode": "2750"}


@pytest.mark.parametrize(
    ("wanted", "class_", "handed"),
    [
        ({}, {}, {}),
        ({"readOnly": True}, {}, {"readOnly": True}),
        ({}, {"owner": {"gid": 7, "mode": "2770"}}, {"owner": {"uid": 0, "gid": 7, "mode": "2770"}}),
        ({"reclaim": "Retain"}, {"retainAtMost": 3}, {"retain": 3}),
        ({"reclaim": "Delete"}, {"retainAtMost": 3}, {}),
    ],
)
async def test_the_node_is_told_what_claim_and_class_say_of_the_directory(
    wanted: dict[str, Any], class_: dict[str, Any], handed: dict[str, Any]
) -> None:
    found = await stocked().allocate(asks("p", wanted, **class_), "a")
    data = found["claim-0"].data
    assert {name: data[name] for name in data if name in ("owner", "readOnly", "retain")} == handed


@pytest.mark.parametrize(
    ("wanted", "class_", "reason"),
    [
        (
            [{"reclaim": "Retain"}],
            {},
            "reclaim=Retain of claim p-claim-0: class tested retains nothing: set retainAtMost in the class, or "
            "leave reclaim out",
        ),
        (
            [{"size": "3Gi"}],
            {"maxSize": "2Gi"},
            "size=3Gi of claim p-claim-0 is more than maxSize=2Gi of class tested",
        ),
        (
            [{}, {}],
            {},
            "claims p-claim-0 and p-claim-1 have the same mountPath=/workspace: change that of one of them",
        ),
        (
            [{"variable": "WORKSPACE_X_PATH"}, {"variable": "WORKSPACE_X_PATH", "mountPath": "/other"}],
            {},
            "claims p-claim-0 and p-claim-1 have the same variable=WORKSPACE_X_PATH: change that of one of them",
        ),
    ],
    ids=["nothing may stay", "too large", "same path", "same variable"],
)
async def test_what_no_node_will_do_for_is_said_for_all_and_no_other_is_proposed(
    wanted: list[dict[str, Any]], class_: dict[str, Any], reason: str
) -> None:
    driver, asked = stocked(), asks("p", *wanted, **class_)
    answer = driver.viable(asked, ("a", "c"))["claim-0"]
    assert (answer.viable, answer.alternatives) == ((), ())
    assert set(answer.reasons.values()) == {reason}
    with pytest.raises(NoRoom, match="p-claim-0"):
        await driver.allocate(asked, "a")


def a_slice(name: str, size: str, generation: int) -> ResourceSlice:
    one = disk("a", size)
    pool = msgspec.structs.replace(one.spec.pool, generation=generation)
    spec = msgspec.structs.replace(one.spec, pool=pool)
    return msgspec.structs.replace(one, metadata=ObjectMeta(name=name), spec=spec)


def test_of_two_slices_that_two_plugins_made_at_once_the_newer_counts_and_one_may_go() -> None:
    driver, first, second = WorkspaceDriver(), a_slice("first", "4Gi", 1), enforcing(a_slice("second", "4Gi", 1))
    newer = a_slice("first", "6Gi", 2)
    assert driver.observe(None, first)
    assert driver.observe(None, second)
    assert driver.observe(first, newer)
    assert driver._known("a") == (6 * GI, False)
    assert not driver.observe(second, None)
    assert driver._known("a") == (6 * GI, False)
    assert driver.observe(newer, None)
    assert "a" not in driver._disks
    assert not driver._published


def test_a_node_speaks_for_its_own_disk_only() -> None:
    driver = WorkspaceDriver()
    assert not driver.observe(None, disk("a", pool="b"))
    assert not driver.observe(None, disk("a", name="other"))
    assert not driver.observe(None, disk("a", driver="other.example.com"))
    assert driver.observe(None, disk("a"))
    assert driver.observe(disk("a"), disk("a", "20Gi"))
    assert driver.observe(disk("a", "20Gi"), None)
    assert driver.viable(asks("p", {}), ("a",))["claim-0"].viable == ()


async def test_enforced_sizes_are_for_nodes_that_can() -> None:
    driver = stocked()
    able = enforcing(disk("b", "4Gi"))
    assert driver.observe(disk("b", "4Gi"), able)
    wanted = asks("p", {"size": "1Gi"}, enforce="Image")
    answer = driver.viable(wanted, ("a", "b"))["claim-0"]
    assert answer.viable == ("b",)
    assert answer.reasons["a"] == (
        "can't keep workspaces to their sizes (enforce=Image): its node plugin has no loop devices"
    )
    allocation = (await driver.allocate(wanted, "b"))["claim-0"]
    assert allocation.data["enforce"] == "Image"
    watched = await driver.allocate(asks("q", {"size": "1Gi"}), "b")
    assert "enforce" not in watched["claim-0"].data
    assert driver.observe(able, enforcing(disk("b", "4Gi"), able=False))
    assert driver.viable(asks("r", {"size": "1Gi"}, enforce="Image"), ("a", "b"))["claim-0"].viable == ()


def test_the_class_says_to_whom_what_claims_reserve_yields_and_the_claim_can_not() -> None:
    class_ = WorkspaceClass.model_validate({"maxReserve": {"cpu": 4}, "yieldsTo": ["night", "weekend"]})
    asked = WorkspaceParameters.model_validate({"reserve": {"cpu": 2}})
    claim = ClaimRequest("data", "u-1", "build", "tested", asked, class_)
    assert WorkspaceDriver().reserves(claim) == Reserve({"cpu": "2"}, yields_to=("night", "weekend"))
    for inside in ({"reserve": {"cpu": 2, "yieldsTo": ["mine"]}}, {"yieldsTo": ["mine"]}):
        with pytest.raises(ValidationError, match="yieldsTo"):
            WorkspaceParameters.model_validate(inside)
    for names in (["x"] * 17, [""], ["x" * 254]):
        with pytest.raises(ValidationError, match="yieldsTo"):
            WorkspaceClass.model_validate({"yieldsTo": names})
