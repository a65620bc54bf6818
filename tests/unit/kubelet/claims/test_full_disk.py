"""A tenant's workspace fills the disk that the checkpoint and the CDI specifications are on, too: what is prepared
is released and removed, so that there is room again."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from parley.kube.client import Client
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.driver.workspace_handle import WorkspaceSettings
from parley_kubelet.driver.workspaces import DISK, WorkspaceNode
from parley_kubelet.hooks import Refused
from parley_kubelet.state.checkpoint import HeldDevice
from parley_kubelet.state.durable import DISK as SYSTEM
from parley_kubelet.state.durable import SPARE, Disk, Folder
from parley_kubelet.testing import allocated_status, create_claim

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Of 12 MiB, for everything that the plugin writes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def plugin(client: Client, disk: Path, system: Disk = SYSTEM) -> Preparation:
    """The plugin as it starts."""
    preparation = Preparation(
        WorkspaceNode("n1", WorkspaceSettings(root=disk / "root")),
        client,
        state=Folder(disk / "state", disk=system, spare=SPARE),
        cdi=Folder(disk / "cdi"),
        boot="boot",
    )
    preparation.restore()
    return preparation


def handle(name: str, path: str = "/workspace") -> dict[str, str | int]:
    return {"workspace": f"id-of-{name}", "bytes": 1, "mountPath": path, "variable": "PLACE"}


async def allocated(client: Client, name: str, path: str = "/workspace") -> ClaimName:
    status = allocated_status("n1", [DISK], driver=WorkspaceNode.name, data=handle(name, path))
    claim = await create_claim(client, name, status)
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def fill(folder: Path) -> None:
    """Write until there is no block left."""
    written, count = bytes(4096), 4096
    with (folder / "hoard").open("ab", buffering=0) as hoard, suppress(OSError):
        while count == len(written):
            count = hoard.write(written)
    assert os.statvfs(folder).f_bfree == 0


class Hogged(Disk):
    """Somebody takes each block that comes free before Parley does, once `hog` is set."""

    hog: Path | None = None

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        self._take()
        return super().create(folder, data, mode)

    def reserve(self, path: Path, size: int) -> None:
        self._take()
        super().reserve(path, size)

    def allocate(self, path: Path, size: int) -> None:
        self._take()
        super().allocate(path, size)

    def _take(self) -> None:
        if self.hog is not None:
            fill(self.hog)


@pytest.mark.parametrize("restarted", [False, True])
async def test_claims_end_one_by_one_while_somebody_takes_each_block_that_comes_free(
    client: Client, disk: Path, restarted: bool
) -> None:
    claims = [await allocated(client, f"claim-{i}") for i in range(20)]
    hogged = Hogged()
    preparation = plugin(client, disk, hogged)
    for claim in claims:
        await preparation.prepare(claim)
    hogged.hog = disk / "root" / "data" / "id-of-claim-0"
    for claim in claims:
        if restarted:
            preparation = plugin(client, disk, hogged)
        with pytest.raises((OSError, Refused), match="No space left"):
            await preparation.prepare(await allocated(client, f"late-{claim.name}"))
        await preparation.unprepare(claim)
        assert not await preparation.holds(claim.uid)


@pytest.mark.parametrize("restarted", [False, True])
async def test_so_do_hundreds_whose_checkpoint_is_large(client: Client, disk: Path, restarted: bool) -> None:
    """A pod may have 128 of them, with paths of 256 characters."""
    claims = [await allocated(client, f"claim-{i}", f"/{'p' * 255}") for i in range(900)]
    hogged = Hogged()
    preparation = plugin(client, disk, hogged)
    await asyncio.gather(*map(preparation.prepare, claims))
    assert (disk / "state" / "checkpoint.json").stat().st_size > SPARE
    hogged.hog = disk / "root" / "data" / "id-of-claim-0"
    if restarted:
        preparation = plugin(client, disk, hogged)
    for claim in claims[:3]:
        await preparation.unprepare(claim)
    await asyncio.gather(*map(preparation.unprepare, claims))
    assert await preparation.entries() == {}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_disk_that_a_workspace_filled_is_free_again_when_its_claim_ends(
    client: Client, disk: Path, restarted: bool
) -> None:
    hog, late = await allocated(client, "hog"), await allocated(client, "late")
    preparation = plugin(client, disk)
    await preparation.prepare(hog)
    fill(disk / "root" / "data" / "id-of-hog")
    with pytest.raises((OSError, Refused), match="No space left"):
        await preparation.prepare(late)
    if restarted:
        preparation = plugin(client, disk)
    await preparation.unprepare(late)
    await preparation.unprepare(hog)
    assert not await preparation.holds(hog.uid)
    await preparation.remove_data(hog, [HeldDevice(pool="n1", name=DISK)], handle("hog"))
    assert [path.name for path in (disk / "root").glob("*/*")] in ([], ["id-of-late"])
    assert list((disk / "cdi").glob("*.json")) == []
    await preparation.prepare(late)
    assert [entry.phase for entry in plugin(client, disk).restore().values()] == ["prepared"]
    assert (disk / "state" / "spare").stat().st_blocks * 512 == SPARE
