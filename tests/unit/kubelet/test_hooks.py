"""A driver's hooks as the plugin calls them: when, how often, and what follows from faults and restarts."""

import asyncio
from typing import Any

import pytest
from tests.unit.kubelet.checkpoints import recorded
from tests.unit.kubelet.drivers import DRIVER, PortNode, Ports

from parley.api.resources import BUILTIN_CLAIMS
from parley_kubelet.claims.preparation import ClaimName, Preparation, boot_id
from parley_kubelet.hooks import Refused
from parley_kubelet.testing import allocated_status


async def test_a_claim_is_prepared_once_and_unprepared_with_what_prepare_returned(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    first = await plugin.prepare(claim)
    assert first.edits.env == {"PORT": "7"}
    assert await plugin.prepare(claim) == first
    assert node.files() == [f"parley.dev-{DRIVER}-claim-{claim.uid}.json"]
    await plugin.unprepare(claim)
    assert driver.calls == ["prepare a", "unprepare a"]
    assert driver.states == [{"opened": 7}]
    assert (node.files(), recorded(node, claim)) == ([], None)


async def test_the_intention_is_on_the_disk_before_the_driver_is_called(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7, "port-7")
    driver.may_go_on.clear()
    call = asyncio.create_task(node.plugin(driver).prepare(claim))
    await driver.entered.wait()
    entry = recorded(node, claim)
    assert entry is not None
    assert (entry.phase, entry.handle, entry.devices[0].name) == ("preparing", {"number": 7}, "port-7")
    assert node.files() == []
    driver.may_go_on.set()
    await call
    assert (recorded(node, claim) or entry).phase == "prepared"


async def test_a_process_that_died_in_the_middle_is_followed_by_another_prepare(node: PortNode) -> None:
    claim = await died_while_preparing(node)
    driver = Ports()
    assert (await node.plugin(driver).prepare(claim)).phase == "prepared"
    assert driver.calls == ["prepare a"]


async def test_or_by_an_unprepare_that_knows_no_state(node: PortNode) -> None:
    claim = await died_while_preparing(node)
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)
    driver = Ports()
    await node.plugin(driver).unprepare(claim)
    assert (driver.calls, driver.states) == (["unprepare a"], [None])
    assert recorded(node, claim) is None


async def died_while_preparing(node: PortNode) -> ClaimName:
    claim = await node.claim("a", 7)
    driver = Ports()
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    call = asyncio.create_task(plugin.prepare(claim))
    await driver.entered.wait()
    await plugin.close()
    await asyncio.gather(call, return_exceptions=True)
    return claim


async def test_an_unprepare_that_fails_is_tried_again_with_the_same_state_and_holds_the_device(
    node: PortNode,
) -> None:
    driver = Ports()
    claim, other = await node.claim("a", 7, "port-7"), await node.claim("b", 7, "port-7")
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError, match="busy"):
        await plugin.unprepare(claim)
    with pytest.raises(Refused) as refusal:
        await plugin.prepare(other)
    assert str(refusal.value) == (
        "claim team/b: device='port-7' is still prepared for claim team/a:"
        " wait until the pods that use it are gone from this node"
    )
    driver.fault = None
    await node.plugin(driver).unprepare(claim)
    assert driver.states == [{"opened": 7}]
    await plugin.prepare(other)


async def test_a_pod_that_comes_back_after_half_an_unprepare_is_prepared_anew(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError):
        await plugin.unprepare(claim)
    driver.fault = None
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a", "unprepare a", "prepare a"]


async def test_after_a_restart_of_the_machine_the_driver_prepares_again(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    for path in (node.folder / "cdi").iterdir():
        path.unlink()
    driver = Ports()
    plugin = node.plugin(driver, boot="second boot")
    assert len(node.files()) == 1
    for _ in range(2):
        await plugin.prepare(claim)
    assert driver.calls == ["prepare a"]
    assert (await node.plugin(driver, boot="second boot").entries())[claim.uid].boot == "second boot"


@pytest.mark.parametrize("boot", ["first boot", "second boot"])
@pytest.mark.parametrize(("number", "device"), [(8, "port-7"), (7, "port-8"), (8, "port-8")])
async def test_what_was_allocated_anew_while_the_node_was_lost_takes_the_place_of_what_was_prepared(
    node: PortNode, number: int, device: str, boot: str
) -> None:
    """The machine was down, or only its Node was deleted, which the kubelet makes again when it is started."""
    claim = await node.claim("a", 7, "port-7")
    await node.plugin(Ports()).prepare(claim)
    await allocate_anew(node, allocated_status("n1", [device], driver=DRIVER, data={"number": number}))
    driver = Ports()
    prepared = await node.plugin(driver, boot=boot).prepare(claim)
    assert (prepared.handle, prepared.edits.env["PORT"]) == ({"number": number}, str(number))
    assert [held.name for held in prepared.devices] == [device]
    assert (driver.calls, driver.states) == (["unprepare a", "prepare a"], [{"opened": 7}])


async def test_a_kubelet_that_was_started_again_finds_what_is_prepared_though_the_claim_cannot_be_read(
    node: PortNode,
) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    before = await plugin.prepare(claim)
    await allocate_anew(node, allocated_status("n2", [], driver=DRIVER, data={"number": 8}))
    assert await plugin.prepare(claim) == before
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)
    assert await plugin.prepare(claim) == before
    assert driver.calls == ["prepare a"]


async def test_what_is_elsewhere_since_the_machine_was_down_is_not_prepared_again(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    await allocate_anew(node, allocated_status("n2", [], driver=DRIVER, data={"number": 7}))
    driver = Ports()
    with pytest.raises(Refused, match="names n2, and this is node 'n1'"):
        await node.plugin(driver, boot="second boot").prepare(claim)
    assert driver.calls == []


async def allocate_anew(node: PortNode, status: dict[str, Any]) -> None:
    for body in ({"allocation": None, "reservedFor": None}, status):
        await node.client.patch(BUILTIN_CLAIMS, "a", {"status": body}, "team", subresource="status")


async def test_a_restart_of_the_plugin_alone_asks_nothing_of_the_driver(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    first = await node.plugin(Ports()).prepare(claim)
    driver = Ports()
    assert await node.plugin(driver).prepare(claim) == first
    assert driver.calls == []


def test_this_boot_of_the_machine_has_a_name() -> None:
    assert boot_id() == boot_id() != ""


async def test_closing_twice_is_no_error(node: PortNode) -> None:
    plugin: Preparation = node.plugin(Ports())
    await plugin.close()
    await plugin.close()
