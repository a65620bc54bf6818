"""A tenant's workspace fills the disk that the checkpoint and the CDI specifications are on, too: what is prepared
is given back and removed, so that there is room again."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from parley.kube.client import Client
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.driver.workspaces import DISK, WorkspaceNode, WorkspaceSettings
from parley_kubelet.hooks import Refused
from parley_kubelet.state.checkpoint import HeldDevice
from parley_kubelet.state.durable import SPARE, Folder
from parley_kubelet.testing import allocated_status, create_claim

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Of 4 MiB, for everything that the plugin writes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def plugin(client: Client, disk: Path) -> Preparation:
    """The plugin as it starts."""
    preparation = Preparation(
        WorkspaceNode("n1", WorkspaceSettings(root=disk / "root")),
        client,
        state=Folder(disk / "state", spare=SPARE),
        cdi=Folder(disk / "cdi"),
        boot="boot",
    )
    preparation.restore()
    return preparation


def handle(name: str) -> dict[str, str | int]:
    return {"workspace": f"id-of-{name}", "bytes": 1, "mountPath": "/workspace", "variable": "PLACE"}


async def allocated(client: Client, name: str) -> ClaimName:
    status = allocated_status("n1", [DISK], driver=WorkspaceNode.name, data=handle(name))
    claim = await create_claim(client, name, status)
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def fill(folder: Path) -> None:
    """Write until there is no block left."""
    written, count = bytes(4096), 4096
    with (folder / "hoard").open("wb", buffering=0) as hoard, suppress(OSError):
        while count == len(written):
            count = hoard.write(written)
    assert os.statvfs(folder).f_bfree == 0


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
    assert (disk / "state" / "spare").stat().st_size == SPARE
