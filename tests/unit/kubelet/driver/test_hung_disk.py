"""A workspace disk that does not answer, as that of a dead file server: it stops what needs it, nothing else."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver
from tests.unit.kubelet.test_metrics import free_port, get, scraped

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.resources import CLAIM_RELEASES, NODES
from parley.kube.client import Client
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver import workspaces
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import HeldClaim, Refused
from parley_kubelet.plugin import run_plugin
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, until

WORKSPACES, DEVICES = WorkspaceNode.name, "device.parley.dev"


class HungDisk:
    """Whoever uses a directory below `root` waits until `answer` is called, as in the kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.waiting = 0
        self._hangs = False
        self._changed = threading.Condition()
        self._mkdir = os.mkdir

    def hang(self) -> None:
        self._hangs = True

    def answer(self) -> None:
        with self._changed:
            self._hangs = False
            self._changed.notify_all()

    def mkdir(self, path: Any, *given: Any, **named: Any) -> None:
        """Every use begins with it."""
        if isinstance(path, Path) and path.is_relative_to(self.root):
            assert threading.current_thread() is not threading.main_thread(), "the event loop would wait"
            with self._changed:
                self.waiting += 1
                self._changed.wait_for(lambda: not self._hangs)
                self.waiting -= 1
        self._mkdir(path, *given, **named)


@pytest.fixture
def disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HungDisk]:
    disk = HungDisk(folder / "root")
    monkeypatch.setattr(os, "mkdir", disk.mkdir)
    monkeypatch.setattr(workspaces, "PATIENCE", 0.01)
    yield disk
    disk.answer()
    for thread in threading.enumerate():
        if thread.name.startswith(("workspace-", "disk-call")):
            thread.join(10)


def plugin(client: Client, folder: Path, node: WorkspaceNode, limit: float = 60) -> Preparation:
    return Preparation(
        node, client, state=Folder(folder / "state"), cdi=Folder(folder / "cdi"), boot="first boot", limit=limit
    )


async def allocated(client: Client, name: str, *, generated: bool = False) -> BuiltinClaim:
    handle = claim(name, generated=generated).handle.model_dump(mode="json", by_alias=True)
    return await create_claim(client, name, allocated_status("n1", ["workspaces"], driver=WORKSPACES, data=handle))


def named(claim: BuiltinClaim) -> ClaimName:
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


HANGS = (
    r"driver workspace.parley.dev is not done after 1 s: the disk of .*/root on node n1 has not answered "
    r"for \d+ s: check the disk, or the file server that it is mounted from; the kubelet will try again"
)


async def test_a_call_ends_in_time_and_names_claim_disk_and_remedy(
    client: Client, folder: Path, disk: HungDisk
) -> None:
    node, mine = driver(disk.root), named(await allocated(client, "a"))
    disk.hang()
    with pytest.raises(Refused, match=f"claim team/a: {HANGS}"):
        await plugin(client, folder, node, limit=1).prepare(mine)
    disk.answer()
    entry = await plugin(client, folder, node).prepare(mine)
    assert entry.phase == "prepared"
    assert data(disk.root) == ["id-of-a"]


async def test_what_a_call_does_when_the_disk_answers_at_last_is_undone_as_well(
    client: Client, folder: Path, disk: HungDisk
) -> None:
    node, mine = driver(disk.root), named(await allocated(client, "a", generated=True))
    short, other = plugin(client, folder, node, limit=1), plugin(client, folder, node, limit=1)
    disk.hang()
    for call in (short.prepare, short.prepare, short.unprepare, other.unprepare):
        with pytest.raises(Refused, match=HANGS):
            await call(mine)
    assert disk.waiting == 1, "the others wait for the first, in no thread"
    assert await other.holds(mine.uid), "a receipt would give to others what is being made"
    disk.answer()
    await plugin(client, folder, node).unprepare(mine)
    assert data(disk.root) == []
    assert not await other.holds(mine.uid)


async def test_many_calls_wait_in_few_threads(client: Client, folder: Path, disk: HungDisk) -> None:
    node = driver(disk.root)
    claims = [named(await allocated(client, f"c{number}")) for number in range(40)]
    disk.hang()
    short = plugin(client, folder, node, limit=2)
    refused = await asyncio.gather(*map(short.prepare, claims), return_exceptions=True)
    assert {type(one) for one in refused} == {Refused}
    assert disk.waiting == workspaces.CALLS
    disk.answer()
    await asyncio.gather(*map(plugin(client, folder, node).prepare, claims))
    assert len(data(disk.root)) == 40


async def test_the_node_offers_no_workspaces_until_the_disk_answers(
    disk: HungDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = driver(disk.root)
    disk.hang()
    for _ in range(3):
        assert await asyncio.to_thread(node.devices) == ()
    assert disk.waiting == 2, "who looks at the disk, and who empties the trash"
    disk.answer()
    monkeypatch.setattr(workspaces, "PATIENCE", 60)
    assert len(await asyncio.to_thread(node.devices)) == 1


async def test_the_users_of_claims_hear_of_it(disk: HungDisk) -> None:
    node, held = driver(disk.root), [HeldClaim(claim("a"), {})]
    assert await node.notices(held) == []
    disk.hang()
    await asyncio.to_thread(node.devices)
    (notice,) = await node.notices(held)
    assert (notice.claim.name, notice.reason) == ("a", reasons.DISK_UNRESPONSIVE)
    assert notice.message.startswith(f"the disk of {disk.root} on node n1 has not answered for ")


@asynccontextmanager
async def running(settings: PluginSettings, client: Client) -> AsyncIterator[tuple[Kubelet, Kubelet]]:
    """The plugin with devices and workspaces, registered with the kubelet."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    configuration = Configuration.model_validate(
        {
            "devices": [{"name": "gpu-0", "model": "a100"}],
            "drivers": {
                WORKSPACES: {"root": str(settings.cdi.parent / "root"), "uid": os.getuid(), "gid": os.getgid()}
            },
        }
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(run_plugin(settings, configuration, client, stop))
    try:
        await until(lambda: serving.done() or len(list(settings.registry.glob("*-reg.sock"))) == 2)
        devices, disks = (Kubelet(settings.registry / f"{name}-reg.sock") for name in (DEVICES, WORKSPACES))
        async with devices, disks:
            yield devices, disks
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await serving


async def test_other_drivers_liveness_and_the_end_of_the_plugin_do_not_wait(
    client: Client, folder: Path, disk: HungDisk
) -> None:
    port = free_port()
    settings = PluginSettings(
        node="n1",
        config=folder / "node.yaml",
        plugins=folder / "plugins",
        registry=folder / "registry",
        cdi=folder / "cdi",
        drivers=("devices", "workspaces"),
        metrics_port=port,
    )
    gpu = await create_claim(client, "gpu", allocated_status("n1", ["gpu-0"]))
    held, waits, ended = [await allocated(client, name) for name in ("held", "waits", "ended")]
    async with running(settings, client) as (devices, disks):
        assert (await disks.prepare(held))["held"].error == ""
        disk.hang()
        release = {
            "claim": {"namespace": "team", "name": "ended", "uid": ended.metadata.uid},
            "holdingUid": ended.metadata.uid,
            "nodeName": "n1",
            "driverName": WORKSPACES,
            "allocation": {"handles": [{"driverName": WORKSPACES, "data": claim("ended").handle.model_dump()}]},
            "removeData": True,
        }
        body = {"metadata": {"name": "r"}, "spec": release, "status": {"allocationCleared": True}}
        await client.create(CLAIM_RELEASES, body)
        hangs = asyncio.create_task(disks.prepare(waits))
        await until(lambda: disk.waiting >= 2)
        assert (await devices.prepare(gpu))["gpu"].error == ""
        assert (await devices.unprepare(gpu))["gpu"] == ""
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")
        metrics = await scraped(port)
        assert metrics["parley_node_driver_blocked", WORKSPACES] == 1
        assert metrics["parley_node_driver_blocked", DEVICES] == 0
        hangs.cancel()
    assert disk.waiting >= 2, "the plugin ended before the disk answered"
