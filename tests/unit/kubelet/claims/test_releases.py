"""Receipts: given when nothing is prepared here any more, and by nobody who cannot know."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
from tests.unit.kubelet.drivers import DRIVER, PortNode, Ports

from parley.api.names import (
    CLAIM_UID_ANNOTATION,
    RELEASE_RECORD_LABEL,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import Client, NotFound
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts


@pytest.fixture
def node(client: Client, folder: Path) -> PortNode:
    return PortNode(client, folder)


@pytest.fixture
async def plugin(node: PortNode) -> Preparation:
    await node.client.create(CLASSES, {"metadata": {"name": "ports"}, "driverName": DRIVER})
    return node.plugin(Ports())


async def asked(
    client: Client,
    uid: str,
    *,
    node: str = "n1",
    class_name: str = "ports",
    driver: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """The controller asks that node for a receipt."""
    annotations = {RELEASING_FROM_ANNOTATION: node, CLAIM_UID_ANNOTATION: uid, "kept": "yes"}
    body = {
        "metadata": {
            "name": "a",
            "labels": {RELEASING_LABEL: "true", "kept": "yes", **(labels or {})},
            "annotations": {name: value for name, value in annotations.items() if value},
        },
        "spec": {"resourceClassName": class_name},
    }
    await client.create(CLAIMS, body, "team")
    if driver is not None:
        await client.patch(CLAIMS, "a", {"status": {"driverName": driver}}, "team", subresource="status")


@asynccontextmanager
async def answering(client: Client, *plugins: Preparation) -> AsyncIterator[None]:
    receipts = Receipts(client, "n1", {plugin.driver.name: plugin for plugin in plugins})
    task = asyncio.create_task(receipts.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def waiting(client: Client) -> bool | None:
    """Whether the receipt is waited for; None if the object is gone."""
    try:
        meta = (await client.get(CLAIMS, "a", "team")).metadata
    except NotFound:
        return None
    there = {RELEASING_LABEL in meta.labels}
    there |= {name in meta.annotations for name in (RELEASING_FROM_ANNOTATION, CLAIM_UID_ANNOTATION)}
    assert meta.labels["kept"] == meta.annotations["kept"] == "yes"
    (only,) = there
    return only


async def receipt(client: Client) -> bool | None:
    """The same, once it is given."""
    async with asyncio.timeout(60):
        while found := await waiting(client):  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0.01)
    return found


async def still_waiting(client: Client) -> bool:
    for _ in range(20):
        await asyncio.sleep(0.01)
        if not await waiting(client):
            return False
    return True


async def test_what_was_never_prepared_here_gets_its_receipt_at_once(client: Client, plugin: Preparation) -> None:
    await asked(client, "u1")
    async with answering(client, plugin):
        assert await receipt(client) is False


async def test_a_request_that_comes_later_is_heard(client: Client, plugin: Preparation) -> None:
    async with answering(client, plugin):
        await asyncio.sleep(0.05)
        await asked(client, "u1")
        assert await receipt(client) is False


async def test_what_is_prepared_gets_it_when_it_is_unprepared(
    client: Client, node: PortNode, plugin: Preparation
) -> None:
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid)
    async with answering(client, plugin):
        assert await still_waiting(client)
        await plugin.unprepare(claim)
        assert await receipt(client) is False


@pytest.mark.parametrize("uids", ["{},u2", "u2,{}"])
async def test_a_claim_that_was_made_anew_is_known_by_each_of_its_uids(
    client: Client, node: PortNode, plugin: Preparation, uids: str
) -> None:
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, uids.format(claim.uid))
    async with answering(client, plugin):
        assert await still_waiting(client)
        await plugin.unprepare(claim)
        assert await receipt(client) is False


async def test_half_an_unprepare_gives_no_receipt(client: Client, node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError):
        await plugin.unprepare(claim)
    await asked(client, claim.uid, driver=DRIVER)
    async with answering(client, plugin):
        assert await still_waiting(client)


async def test_what_the_other_plugin_of_an_update_unprepared_gets_it_in_a_moment(
    client: Client, node: PortNode, plugin: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley_kubelet.claims.releases.AGAIN", 0.05)
    claim = await node.claim("a", 7)
    await plugin.prepare(claim)
    await asked(client, claim.uid)
    async with answering(client, plugin):
        assert await still_waiting(client)
        await node.plugin(Ports()).unprepare(claim)
        assert await receipt(client) is False


async def test_an_object_that_exists_for_the_receipt_is_deleted(client: Client, plugin: Preparation) -> None:
    await asked(client, "u1", labels={RELEASE_RECORD_LABEL: "true"})
    async with answering(client, plugin):
        assert await receipt(client) is None


async def test_a_driver_that_the_status_names_counts_more_than_the_class(
    client: Client, plugin: Preparation
) -> None:
    await asked(client, "u1", driver="other.example.com")
    async with answering(client, plugin):
        assert await still_waiting(client)


@pytest.mark.parametrize("options", [{"node": "n2"}, {"class_name": "of-another"}])
async def test_other_nodes_and_drivers_are_not_answered_for(
    client: Client, plugin: Preparation, options: dict[str, Any]
) -> None:
    await client.create(CLASSES, {"metadata": {"name": "of-another"}, "driverName": "other.example.com"})
    await asked(client, "u1", **options)
    async with answering(client, plugin):
        assert await still_waiting(client)


@pytest.mark.parametrize(
    ("uid", "options", "why"),
    [
        ("u1", {"class_name": "gone"}, "neither the claim nor its class names a driver"),
        ("", {}, "it has no annotation parley.dev/claim-uid"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_logged_once(
    client: Client, plugin: Preparation, uid: str, options: dict[str, Any], why: str
) -> None:
    await asked(client, uid, **options)
    receipts = Receipts(client, "n1", {DRIVER: plugin})
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(receipts.run())
        await asyncio.sleep(0.1)
        for _ in range(3):
            await receipts.look()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [(log["event"], log["reason"]) for log in logs] == [("no receipt can be given", why)]


async def test_a_change_in_between_is_seen_before_the_receipt_is_given(
    server: MemoryServer, client: Client, plugin: Preparation
) -> None:
    await asked(client, "u1")
    receipts = Receipts(client, "n1", {DRIVER: plugin})
    task = asyncio.create_task(receipts._watch.run())
    await receipts._watch.synced.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.patch(CLAIMS, "a", {"metadata": {"annotations": {"kept": "yes", "new": "yes"}}}, "team")
    with structlog.testing.capture_logs() as logs:
        await receipts.look()
    assert [log["event"] for log in logs] == ["receipt not given yet"]
    assert await waiting(client)


@pytest.mark.parametrize("levels", [250, 2_000])
async def test_parameters_that_nobody_can_read_are_no_matter(
    client: Client, plugin: Preparation, levels: int
) -> None:
    async with answering(client, plugin):
        deep = orjson.Fragment(b'{"a":' * levels + b"1" + b"}" * levels)
        meta = {"name": "deep", "labels": {RELEASING_LABEL: "true"}}
        spec = {"resourceClassName": "ports", "parameters": deep}
        await client.create(CLAIMS, {"metadata": meta, "spec": spec}, "team")
        await asked(client, "u1")
        assert await receipt(client) is False
