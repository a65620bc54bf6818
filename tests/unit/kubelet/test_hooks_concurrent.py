"""Calls of a driver at the same time, by two plugins, and such as take too long or are given up."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.kubelet.checkpoints import recorded
from tests.unit.kubelet.drivers import DRIVER, PortNode, Ports

from parley.api.resources import Resource
from parley.kube.cancelling import CancelledItself
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import ProcessServices
from parley_kubelet.hooks import Refused


async def test_calls_for_one_claim_are_made_in_their_order(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    calls = [asyncio.create_task(work(claim)) for work in (plugin.prepare, plugin.unprepare, plugin.prepare)]
    await driver.entered.wait()
    assert driver.calls == ["prepare a"]
    driver.may_go_on.set()
    await asyncio.gather(*calls)
    assert driver.calls == ["prepare a", "unprepare a", "prepare a"]


async def test_different_claims_are_prepared_at_the_same_time(node: PortNode) -> None:
    driver = Ports()
    claims = [await node.claim(name, number) for number, name in enumerate("abcd")]
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    calls = [asyncio.create_task(plugin.prepare(claim)) for claim in claims]
    async with asyncio.timeout(60):
        while len(driver.calls) < 4:  # noqa: ASYNC110 - the driver sets no event for the fourth
            await asyncio.sleep(0.01)
    driver.may_go_on.set()
    await asyncio.gather(*calls)
    assert driver.open == {0, 1, 2, 3}


async def test_two_plugins_of_an_update_never_call_for_one_claim_at_the_same_time(node: PortNode) -> None:
    old, new = Ports(), Ports()
    claim = await node.claim("a", 7)
    old.may_go_on.clear()
    first = asyncio.create_task(node.plugin(old).prepare(claim))
    await old.entered.wait()
    second = asyncio.create_task(node.plugin(new).prepare(claim))
    await asyncio.sleep(0.2)
    assert new.calls == []
    old.may_go_on.set()
    assert await first == await second
    assert new.calls == []


async def test_a_call_that_is_given_up_records_nothing_once_the_other_plugin_acts_for_its_claim(
    client: Client, folder: Path
) -> None:
    thread, answers = ThreadPoolExecutor(1), threading.Event()

    def disk_hangs(_: NumberedCall) -> None:
        thread.submit(answers.wait)

    mine = await PortNode(client, folder).claim("a")
    old = PortNode(FaultClient(client, before=disk_hangs), folder).plugin(
        Ports(), limit=0.2, process=ProcessServices(thread)
    )
    new = PortNode(client, folder).plugin(Ports())
    with pytest.raises(Refused, match="is not done after"):
        await old.prepare(mine)
    ending = asyncio.create_task(new.unprepare(mine))
    await asyncio.wait({ending}, timeout=0.3)
    answers.set()
    await asyncio.wrap_future(thread.submit(int))
    await ending
    assert dict(await new.entries()) == {}


async def test_a_driver_that_hangs_is_given_up_in_time_and_asked_again(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver, limit=0.2)
    with pytest.raises(Refused) as refusal:
        await plugin.prepare(claim)
    assert str(refusal.value) == (
        f"claim team/a: driver {DRIVER} is not done after 0.2 s:"
        " see the log of parley-kubelet on this node; the kubelet will try again"
    )
    driver.may_go_on.set()
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a", "prepare a"]


async def test_a_driver_says_what_keeps_its_calls_from_ending_or_fails_to(
    node: PortNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver, limit=0.2)
    for says, why in ((lambda: "no route to the switch", "no route to the switch"), (lambda: 1 / 0, "its hook ")):
        monkeypatch.setattr(driver, "blocked", says)
        with pytest.raises(Refused, match=rf"is not done after 0.2 s: {why}.*; the kubelet will try again"):
            await plugin.prepare(claim)


async def test_a_timeout_of_the_drivers_own_is_its_own_error(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.fault = TimeoutError("the switch does not answer")
    with pytest.raises(TimeoutError, match="the switch does not answer"):
        await node.plugin(driver).prepare(claim)


async def test_a_call_that_the_kubelet_gave_up_goes_on_to_its_end(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    call = asyncio.create_task(plugin.prepare(claim))
    await driver.entered.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await plugin.holds(claim.uid)
    driver.may_go_on.set()
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a"]


async def test_a_claim_is_held_from_the_first_moment_of_a_call_to_the_end_of_unprepare(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    assert not await plugin.holds(claim.uid)
    call = asyncio.create_task(plugin.prepare(claim))
    await asyncio.sleep(0)
    assert await plugin.holds(claim.uid)
    await call
    assert await plugin.holds(claim.uid)
    plugin.released.clear()
    await plugin.unprepare(claim)
    assert not await plugin.holds(claim.uid)
    assert plugin.released.is_set()


class SlowReads(Client):
    """A client whose reads of claims wait until they may go on."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server.client())
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        self.asked.set()
        await self.may_answer.wait()
        return await super().get(resource, name, namespace)


async def test_a_claim_that_the_other_plugin_of_an_update_is_about_to_prepare_is_held(
    node: PortNode, server: MemoryServer, folder: Path
) -> None:
    claim = await node.claim("a", 7)
    slow = SlowReads(server)
    call = asyncio.create_task(PortNode(slow, folder).plugin(Ports()).prepare(claim))
    await slow.asked.wait()
    other = node.plugin(Ports())
    assert recorded(node, claim) is None
    assert await other.holds(claim.uid)
    assert not await other.holds("another")
    slow.may_answer.set()
    await call
    assert await other.holds(claim.uid)


async def test_a_hook_that_cancels_its_own_work_has_failed(node: PortNode) -> None:
    """The kubelet's call was cancelled with it, and told nothing."""
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    words = f"^driver {driver.name} cancelled its own work$"
    driver.fault = asyncio.CancelledError()
    with pytest.raises(CancelledItself, match=words):
        await plugin.prepare(claim)
    with pytest.raises(CancelledItself, match=words):
        await plugin.unprepare(claim)
    driver.fault = None
    await plugin.unprepare(claim)
    assert not await plugin.entries()
