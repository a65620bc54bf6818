"""A node whose checkpoint was lost: what generated claims left is removed when nobody can need it any more, and
nothing else is."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.unit.kubelet.driver.test_images import Loops
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver, records, retained

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES
from parley.kube.client import Client
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.driver import loops
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import HeldClaim
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim


class DiskNode:
    """A node with a disk for workspaces; each `plugin` is a new start over what is there."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.root = folder / "root"

    def plugin(self, boot: str = "first boot") -> Preparation:
        state, cdi = Folder(self.folder / "state"), Folder(self.folder / "cdi")
        preparation = Preparation(driver(self.root), self.client, state=state, cdi=cdi, boot=boot)
        preparation.restore()
        return preparation

    async def prepared(self, name: str, **more: Any) -> ClaimName:
        handle = claim(name, **more).handle.model_dump(mode="json", by_alias=True)
        status = allocated_status("n1", ["workspaces"], driver=WorkspaceNode.name, data=handle)
        meta = (await create_claim(self.client, name, status)).metadata
        mine = ClaimName(meta.namespace, meta.name, meta.uid)
        await self.plugin().prepare(mine)
        return mine

    def lose_checkpoint(self) -> None:
        """As its administrator does, where it is damaged."""
        shutil.rmtree(self.folder / "state")

    async def start(self, boot: str = "first boot") -> list[str]:
        """A start of the plugin, and what it tells of orphans."""
        preparation = self.plugin(boot)
        with structlog.testing.capture_logs() as logs:
            await release_orphans(preparation, self.client)
        return [log["claim"] for log in logs if log["event"] == "orphaned claim unprepared"]

    async def delete(self, mine: ClaimName) -> None:
        await self.client.delete(BUILTIN_CLAIMS, mine.name, mine.namespace)

    async def delete_in_use(self, mine: ClaimName) -> None:
        """Delete the claim while its pod runs: the controller records that."""
        await self.delete(mine)
        spec = {
            "claim": {"namespace": mine.namespace, "name": mine.name, "uid": mine.uid},
            "nodeName": "n1",
            "driverName": WorkspaceNode.name,
            "holdingUid": mine.uid,
            "allocation": {"handles": [{"driverName": WorkspaceNode.name}]},
            "running": {"name": "pod", "uid": "uid-of-pod", "podClaimName": "data"},
        }
        await self.client.create(CLAIM_RELEASES, {"metadata": {"name": "r"}, "spec": spec})

    async def end_pod(self) -> None:
        await self.client.patch(CLAIM_RELEASES, "r", {"status": {"allocationCleared": True}})


@pytest.fixture
def node(client: Client, folder: Path) -> DiskNode:
    return DiskNode(client, folder)


async def test_what_the_kubelet_unprepares_is_removed(node: DiskNode) -> None:
    mine, other = await node.prepared("a", generated=True), await node.prepared("b", generated=True)
    node.lose_checkpoint()
    assert await node.start() == [], "their pods may run"
    await node.plugin().unprepare(mine)
    assert (data(node.root), records(node.root)) == (["id-of-b"], ["id-of-b"])
    await node.plugin().unprepare(other)
    assert (data(node.root), records(node.root)) == ([], [])


async def test_what_the_kubelet_does_not_know_is_removed_at_the_start(node: DiskNode) -> None:
    mine, _ = await node.prepared("a", generated=True), await node.prepared("b", generated=True)
    node.lose_checkpoint()
    await node.delete(mine)
    assert await node.start() == ["team/a"]
    assert (data(node.root), records(node.root)) == (["id-of-b"], ["id-of-b"])


async def test_a_later_claim_of_its_name_keeps_what_it_has(node: DiskNode) -> None:
    mine = await node.prepared("a", generated=True)
    node.lose_checkpoint()
    await node.delete(mine)
    await node.prepared("a", generated=True, workspace="id-of-the-later-a")
    assert await node.start() == ["team/a"]
    assert data(node.root) == ["id-of-the-later-a"]


@pytest.mark.parametrize("lost", ["checkpoint", "boot"])
async def test_a_recreated_claim_keeps_the_directory_of_its_running_pod(node: DiskNode, lost: str) -> None:
    mine = await node.prepared("a", generated=True)
    await node.delete_in_use(mine)
    recreated = await node.prepared("anew", generated=True, workspace="id-of-a")
    boot = "second boot" if lost == "boot" else "first boot"
    if lost == "checkpoint":
        node.lose_checkpoint()
    assert await node.start(boot) == []
    assert data(node.root) == ["id-of-a"]
    await node.delete(recreated)
    await node.end_pod()
    assert "team/a" in await node.start(boot)
    assert (data(node.root), records(node.root)) == ([], [])


async def test_named_claims_and_views_keep_their_directories(node: DiskNode) -> None:
    mine = await node.prepared("a")
    view = await node.prepared("view", workspace="id-of-a", source="uid-of-a", generated=True, readOnly=True)
    node.lose_checkpoint()
    for one in (view, mine):
        await node.delete(one)
    assert await node.start() == []
    for one in (view, mine):
        await node.plugin().unprepare(one)
    assert data(node.root) == ["id-of-a"], "the controller asks for it when the claim ends"


async def test_what_is_to_be_retained_is_retained(node: DiskNode) -> None:
    mine = await node.prepared("a", generated=True, retain=1)
    node.lose_checkpoint()
    await node.delete(mine)
    assert await node.start() == ["team/a"]
    assert (data(node.root), retained(node.root)) == ([], {"team": ["a"]})


async def test_loop_devices_go_too(node: DiskNode, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Loops()
    for name, instead in (("available", lambda: True), ("attach", found.attach), ("detach", found.detach)):
        monkeypatch.setattr(loops, name, instead)
    mine = await node.prepared("a", generated=True, enforce="Image", bytes=16 * 1024**2)
    assert set(found.files) == {"id-of-a"}
    node.lose_checkpoint()
    await node.plugin().unprepare(mine)
    assert (data(node.root), set(found.files)) == ([], set())


async def test_what_the_kubelet_has_prepared_since_it_was_looked_at_is_left(node: DiskNode) -> None:
    mine = await node.prepared("a", generated=True)
    assert not await node.plugin().unprepare_orphan(mine, None)
    assert data(node.root) == ["id-of-a"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"namespace": "team"}', None])
async def test_a_record_that_cannot_be_read_keeps_no_other_from_it(node: DiskNode, content: bytes | None) -> None:
    mine, damaged = await node.prepared("a", generated=True), node.root / "generated" / "id-of-b"
    damaged.mkdir() if content is None else damaged.write_bytes(content)
    node.lose_checkpoint()
    await node.delete(mine)
    assert await node.start() == ["team/a"]


async def test_a_full_disk_keeps_no_generated_claim_of_an_earlier_version_from_ending(tmp_path: Path) -> None:
    node, mine = driver(tmp_path), claim("a", generated=True)
    await node.prepare(mine)
    shutil.rmtree(tmp_path / "generated")
    await node.unprepare(HeldClaim(mine, None))
    assert not (tmp_path / "generated").exists(), "to make it, there may be no room"
    assert data(tmp_path) == []
