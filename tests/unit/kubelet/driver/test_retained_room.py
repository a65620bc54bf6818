"""The room of what claims retained is promised to nobody else, from when their claims give it up."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.claims.test_releases import receipt
from tests.unit.kubelet.driver.workspace_folders import claim, driver

from parley.api.resources import CLAIM_RELEASES, NODES, RESOURCE_SLICES
from parley.kube.client import Client
from parley_kubelet.claims import preparation
from parley_kubelet.claims.preparation import ClaimName, Preparation, ProcessServices
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import Refused
from parley_kubelet.plugin import run_plugin
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, until

DRIVER = WorkspaceNode.name
GI = 1024**3


@asynccontextmanager
async def running(client: Client, folder: Path) -> AsyncIterator[Kubelet]:
    """A plugin with 10Gi for workspaces, registered with the kubelet."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    mine = {"root": str(folder / "root"), "uid": os.getuid(), "gid": os.getgid(), "size": "10Gi"}
    settings = PluginSettings(
        node="n1",
        config=folder / "node.yaml",
        plugins=folder / "plugins",
        registry=folder / "registry",
        cdi=folder / "cdi",
        drivers=("workspaces",),
    )
    stop = asyncio.Event()
    configuration = Configuration.model_validate({"drivers": {DRIVER: mine}})
    serving = asyncio.create_task(run_plugin(settings, configuration, client, stop))
    socket = settings.registry / f"{DRIVER}-reg.sock"
    try:
        await until(lambda: serving.done() or socket.exists())
        async with Kubelet(socket) as kubelet:
            yield kubelet
    finally:
        stop.set()
        await serving


async def published(client: Client) -> int:
    """The bytes that the node has for workspaces; -1 if that is not published yet."""
    slices = (await client.list(RESOURCE_SLICES)).items
    return int(slices[0].spec.devices[0].capacity["size"].value) if slices else -1


async def ends(client: Client, uid: str, data: Any) -> None:
    """The claim has ended, and the controller waits for the node."""
    spec = {
        "claim": {"namespace": "team", "name": "a", "uid": uid},
        "holdingUid": uid,
        "nodeName": "n1",
        "driverName": DRIVER,
        "allocation": {"handles": [{"driverName": DRIVER, "data": data}]},
        "removeData": True,
    }
    await client.create(
        CLAIM_RELEASES, {"metadata": {"name": "a"}, "spec": spec, "status": {"allocationCleared": True}}
    )


@pytest.mark.parametrize(("retain", "left"), [(1, 6 * GI), (0, 10 * GI)])
async def test_who_waits_for_room_is_not_promised_what_is_retained(
    client: Client, folder: Path, retain: int, left: int
) -> None:
    handle = claim("a", retain=retain, bytes=4 * GI).handle.model_dump(mode="json", by_alias=True)
    mine = await create_claim(client, "a", allocated_status("n1", ["workspaces"], driver=DRIVER, data=handle))
    async with running(client, folder) as kubelet:
        assert (await kubelet.prepare(mine))["a"].error == ""
        assert (await kubelet.unprepare(mine))["a"] == ""
        async with asyncio.timeout(60):
            while await published(client) < 0:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.02)
        assert await published(client) == 10 * GI
        await ends(client, mine.metadata.uid, handle)
        await receipt(client, "a")
        assert await published(client) == left, "the controller promises it to others from now on"


@pytest.mark.parametrize(("retain", "left"), [(1, 6 * GI), (0, 10 * GI)])
async def test_what_a_generated_claim_retains_is_taken_when_its_pod_has_ended(
    client: Client, folder: Path, retain: int, left: int
) -> None:
    """The controller gives its room to others when the kubelet has reported the pod's end, which is after this."""
    one = claim("a", retain=retain, bytes=4 * GI, generated=True)
    handle = one.handle.model_dump(mode="json", by_alias=True)
    mine = await create_claim(client, "a", allocated_status("n1", ["workspaces"], driver=DRIVER, data=handle))
    async with running(client, folder) as kubelet:
        assert (await kubelet.prepare(mine))["a"].error == ""
        async with asyncio.timeout(60):
            while await published(client) < 0:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.02)
        assert (await kubelet.unprepare(mine))["a"] == ""
        assert await published(client) == left


async def test_a_pod_whose_retained_room_cannot_be_published_is_told_why_it_does_not_end(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver is done: it is the API server that does not take the slice."""
    monkeypatch.setattr(preparation, "PUBLISHING", 0.05)
    handle = claim("a", retain=1, generated=True).handle.model_dump(mode="json", by_alias=True)
    mine = await create_claim(client, "a", allocated_status("n1", ["workspaces"], driver=DRIVER, data=handle))
    name, published = ClaimName("team", "a", mine.metadata.uid), asyncio.Event()

    async def publish() -> None:
        await published.wait()

    node = Preparation(
        driver(folder / "root"),
        client,
        state=Folder(folder / "state"),
        cdi=Folder(folder / "cdi"),
        boot="first boot",
        process=ProcessServices(published=publish),
    )
    await node.prepare(name)
    with pytest.raises(Refused) as refused:
        await node.unprepare(name)
    assert str(refused.value) == (
        "claim team/a: its data stays on node n1, and what room is left there is not in its ResourceSlices yet: "
        "see 'devices are not published' in the log of parley-kubelet on this node; the kubelet will try again"
    )
    published.set()
    await node.unprepare(name)
    assert await node.entries() == {}
