"""Receipts: given when nothing is prepared here any more, and by nobody who cannot know."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
from tests.unit.kubelet.drivers import DRIVER, PortNode, Ports

from parley.api.resources import CLAIM_RELEASES
from parley.kube.backoff import Backoff
from parley.kube.client import Client, NotFound
from parley_kubelet.claims import releases
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.state.durable import Folder


@pytest.fixture
def node(client: Client, folder: Path) -> PortNode:
    return PortNode(client, folder)


@pytest.fixture
async def plugin(node: PortNode) -> Preparation:
    return node.plugin(Ports())


async def asked(
    client: Client,
    uid: str,
    *,
    name: str = "a",
    node: str = "n1",
    driver: str = DRIVER,
    data: Any = None,
    cleared: bool = True,
    ended: bool = False,
) -> None:
    """The controller waits for that node's receipt, and says whether it may be given."""
    spec = {
        "claim": {"namespace": "team", "name": "a", "uid": uid},
        "holdingUid": uid,
        "nodeName": node,
        "driverName": driver,
        "allocation": {"handles": [{"driverName": driver, "data": data or {}}]},
        "removeData": ended,
    }
    status = {"allocationCleared": True} if cleared else {}
    await client.create(CLAIM_RELEASES, {"metadata": {"name": name}, "spec": spec, "status": status})


@asynccontextmanager
async def answering(client: Client, *plugins: Preparation) -> AsyncIterator[None]:
    receipts = Receipts(client, "n1", {plugin.driver.name: plugin for plugin in plugins})
    task = asyncio.create_task(receipts.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def waiting(client: Client, name: str = "a") -> bool:
    """Whether the receipt is waited for."""
    try:
        await client.get(CLAIM_RELEASES, name)
    except NotFound:
        return False
    return True


async def receipt(client: Client, name: str = "a") -> None:
    """Return once it is given."""
    async with asyncio.timeout(60):
        while await waiting(client, name):  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0.01)


async def still_waiting(client: Client) -> bool:
    for _ in range(20):
        await asyncio.sleep(0.01)
        if not await waiting(client):
            return False
    return True


async def test_what_was_never_prepared_here_gets_its_receipt_at_once(client: Client, plugin: Preparation) -> None:
    await asked(client, "u1")
    async with answering(client, plugin):
        await receipt(client)


async def test_a_request_that_comes_later_is_heard(client: Client, plugin: Preparation) -> None:
    async with answering(client, plugin):
        await asyncio.sleep(0.05)
        await asked(client, "u1")
        await receipt(client)


async def test_many_that_are_still_prepared_cost_one_look_at_what_is_held(
    client: Client, node: PortNode, plugin: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, reads, look, read = list[Receipts](), list[str](), Receipts.give_receipts, Folder.read
    for number in range(10):
        await plugin.prepare(await node.claim(f"c{number}", number))
    for uid in await plugin.entries():
        await asked(client, uid, name=uid)
    await asked(client, "u1")

    async def counted_look(receipts: Receipts) -> None:
        looks.append(receipts)
        await look(receipts)

    def counted_read(folder: Folder, name: str) -> bytes | None:
        reads.append(name)
        return read(folder, name)

    monkeypatch.setattr(Receipts, "give_receipts", counted_look)
    monkeypatch.setattr(Folder, "read", counted_read)
    async with answering(client, plugin):
        await receipt(client)
    assert len(reads) <= 2 * len(looks), "one for all of them, one for the receipt that is given"


async def test_what_is_prepared_gets_it_when_it_is_unprepared(
    client: Client, node: PortNode, plugin: Preparation
) -> None:
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid)
    async with answering(client, plugin):
        assert await still_waiting(client)
        await plugin.unprepare(claim)
        await receipt(client)


async def test_a_claim_that_was_made_anew_is_waited_for_by_itself(
    client: Client, node: PortNode, plugin: Preparation
) -> None:
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid)
    await asked(client, "u2", name="b")
    async with answering(client, plugin):
        await receipt(client, "b")
        assert await still_waiting(client)
        await plugin.unprepare(claim)
        await receipt(client)


async def test_nothing_is_said_before_the_controller_has_cleared_the_allocation(
    client: Client, plugin: Preparation
) -> None:
    await asked(client, "u1", cleared=False)
    async with answering(client, plugin):
        assert await still_waiting(client)
        await client.patch(CLAIM_RELEASES, "a", {"status": {"allocationCleared": True}})
        await receipt(client)


async def test_half_an_unprepare_gives_no_receipt(client: Client, node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError):
        await plugin.unprepare(claim)
    await asked(client, claim.uid)
    async with answering(client, plugin):
        assert await still_waiting(client)


async def test_what_the_other_plugin_of_an_update_unprepared_gets_it_in_a_moment(
    client: Client, node: PortNode, plugin: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley_kubelet.claims.releases.RECHECK", 0.05)
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid)
    async with answering(client, plugin):
        assert await still_waiting(client)
        await node.plugin(Ports()).unprepare(claim)
        await receipt(client)


@pytest.mark.parametrize("options", [{"node": "n2"}, {"driver": "other.example.com"}])
async def test_other_nodes_and_drivers_are_not_answered_for(
    client: Client, plugin: Preparation, options: dict[str, Any]
) -> None:
    await asked(client, "u1", **options)
    async with answering(client, plugin):
        assert await still_waiting(client)


async def test_what_is_asked_anew_is_not_answered_by_an_old_copy(client: Client, plugin: Preparation) -> None:
    await asked(client, "u1")
    receipts = Receipts(client, "n1", {DRIVER: plugin})
    task = asyncio.create_task(receipts._watch.run())
    await receipts._watch.synced.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.delete(CLAIM_RELEASES, "a")
    await asked(client, "u1", cleared=False)
    with structlog.testing.capture_logs() as logs:
        await receipts.give_receipts()
    assert [log["event"] for log in logs] == ["receipt not given yet"]
    assert await waiting(client)


@pytest.mark.parametrize("levels", [250, 2_000])
async def test_what_a_driver_wrote_is_no_matter(client: Client, plugin: Preparation, levels: int) -> None:
    deep = orjson.Fragment(b'{"a":' * levels + b"1" + b"}" * levels)
    async with answering(client, plugin):
        await asked(client, "u1", data=deep)
        await receipt(client)


def removals(ports: Ports) -> list[str]:
    return [call for call in ports.calls if call.startswith("remove")]


async def test_data_of_a_claim_that_ended_is_removed_before_the_receipt(client: Client, node: PortNode) -> None:
    ports = Ports()
    ports.may_go_on.clear()
    await asked(client, "u1", data={"number": 7}, ended=True)
    async with answering(client, node.plugin(ports)):
        await ports.entered.wait()
        assert await still_waiting(client)
        ports.may_go_on.set()
        await receipt(client)
    assert removals(ports) == ["remove a u1 7"]


async def test_nothing_is_removed_before_it_is_unprepared_nor_for_a_claim_that_goes_on(
    client: Client, node: PortNode
) -> None:
    ports = Ports()
    plugin = node.plugin(ports)
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid, data={"number": 7}, ended=True)
    await asked(client, "u2", name="b", data={"number": 8})
    await asked(client, "u3", name="c", data={"number": 9}, ended=True, cleared=False)
    async with answering(client, plugin):
        await receipt(client, "b")
        assert await still_waiting(client)
        assert removals(ports) == []
        await plugin.unprepare(claim)
        await receipt(client)
    assert removals(ports) == [f"remove a {claim.uid} 7"]


async def test_a_slow_removal_keeps_nobody_else_waiting(client: Client, node: PortNode) -> None:
    ports = Ports()
    ports.may_go_on.clear()
    await asked(client, "u1", data={"number": 7}, ended=True)
    async with answering(client, node.plugin(ports)):
        await ports.entered.wait()
        await asked(client, "u2", name="b", data={"number": 8})
        await receipt(client, "b")
        assert await waiting(client)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError("the disk is on fire"), "OSError: the disk is on fire"),
        (asyncio.CancelledError(), f"CancelledItself: driver {DRIVER} cancelled its own work"),
    ],
    ids=["raises", "cancels its own work"],
)
async def test_a_removal_that_fails_is_tried_again_and_said(
    client: Client, node: PortNode, monkeypatch: pytest.MonkeyPatch, fault: BaseException, told: str
) -> None:
    monkeypatch.setattr(releases, "RETRIES", Backoff(first=0.01, longest=0.01))
    monkeypatch.setattr(releases, "RECHECK", 0.01)
    ports = Ports()
    ports.fault = fault
    await asked(client, "u1", data={"number": 7}, ended=True)
    with structlog.testing.capture_logs() as logs:
        async with answering(client, node.plugin(ports)):
            await ports.entered.wait()
            assert await still_waiting(client)
            ports.fault = None
            await receipt(client)
    assert len(removals(ports)) > 1
    said = [entry for entry in logs if entry["event"] == "data not removed yet"]
    assert (said[0]["claim"], said[0]["reason"]) == ("team/a", told)


async def test_a_removal_that_was_cut_short_is_begun_again_by_the_next_process(
    client: Client, node: PortNode
) -> None:
    ports = Ports()
    ports.may_go_on.clear()
    await asked(client, "u1", data={"number": 7}, ended=True)
    async with answering(client, node.plugin(ports)):
        await ports.entered.wait()
    assert await waiting(client)
    following = Ports()
    async with answering(client, node.plugin(following)):
        await receipt(client)
    assert removals(following) == ["remove a u1 7"]


async def test_a_removal_ends_when_nobody_waits_for_it(client: Client, node: PortNode) -> None:
    ports = Ports()
    ports.may_go_on.clear()
    await asked(client, "u1", data={"number": 7}, ended=True)
    async with answering(client, node.plugin(ports)):
        await ports.entered.wait()
        await client.delete(CLAIM_RELEASES, "a")
        await asked(client, "u2", name="b", data={"number": 8})
        await receipt(client, "b")
        ports.may_go_on.set()
    assert removals(ports) == ["remove a u1 7"]
