"""A kept claim whose node was installed anew, or lost its disk, gets no empty directory without a word."""

import shutil
from pathlib import Path
from secrets import token_hex
from threading import Thread
from typing import Any

import msgspec
import pytest
from tests.unit.drivers.workspaces import asks
from tests.unit.kubelet.driver.workspace_folders import data, driver

from parley.api.builtin import ObjectMeta, ResourceSlice, ResourceSliceSpec
from parley.drivers.workspace import DISK, IDENTITY, WorkspaceDriver
from parley_kubelet.driver import disk_identity, workspaces
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import DeviceName, HeldClaim, NodeClaim, Refused
from parley_kubelet.serving.slices import slice_specs
from parley_kubelet.testing import node_claim


async def allocated(node: WorkspaceNode, *parameters: dict[str, Any], **class_: Any) -> list[NodeClaim[Any]]:
    """What the controller's part allocates of what the node publishes."""
    (spec,) = slice_specs(node.name, node.node, node.devices(), 1)
    controller = WorkspaceDriver()
    controller.observe(
        None, ResourceSlice(metadata=ObjectMeta(name="disk"), spec=msgspec.convert(spec, ResourceSliceSpec))
    )
    found = await controller.allocate(asks("p", *parameters, defaultSize="16Mi", **class_), "n1")
    return [node_claim(WorkspaceNode, name, one.data or {}, DeviceName("n1", DISK)) for name, one in found.items()]


def reinstalled(root: Path) -> WorkspaceNode:
    shutil.rmtree(root)
    return driver(root)


def test_a_disk_gets_one_identity_though_two_want_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else claims would be allocated by the one that was overwritten, and refused for ever."""
    found: list[str] = []
    other = Thread(target=lambda: found.append(disk_identity.identity(tmp_path)))
    others = iter([other])

    def token(length: int) -> str:
        for thread in others:
            thread.start()
            thread.join(0.2)
        return token_hex(length)

    monkeypatch.setattr(disk_identity, "token_hex", token)
    found.append(disk_identity.identity(tmp_path))
    other.join()
    assert found == [disk_identity.identity(tmp_path)] * 2


async def test_a_kept_claim_is_refused_on_another_disk_until_its_own_is_back(tmp_path: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    (kept,) = await allocated(driver(root), {})
    await driver(root).prepare(kept)
    (root / "data" / kept.handle.workspace / "file").touch()
    await driver(root).unprepare(HeldClaim(kept, {}))
    shutil.copytree(root, away)

    other = reinstalled(root)
    with pytest.raises(
        Refused, match=f"claim team/claim-0: its files are not on the disk that {root} on node n1 is"
    ):
        await other.prepare(kept)
    assert data(root) == []
    (further,) = await allocated(other, {})
    await other.prepare(further)
    await other.remove_data(kept)

    shutil.rmtree(root)
    away.rename(root)
    await driver(root).prepare(kept)
    assert (root / "data" / kept.handle.workspace / "file").exists()


async def test_neither_a_file_system_nor_a_view_of_it_is_made_on_another_disk(tmp_path: Path) -> None:
    shown = {"source": {"claim": "p-claim-0"}, "mountPath": "/inputs"}
    _, view = await allocated(driver(tmp_path / "a"), {}, shown)
    (limited,) = await allocated(driver(tmp_path / "b"), {}, enforce="Image")
    for claim, root in ((view, tmp_path / "a"), (limited, tmp_path / "b")):
        with pytest.raises(Refused):
            await reinstalled(root).prepare(claim)
        assert data(root) == []


async def test_what_may_start_over_gets_an_empty_directory(tmp_path: Path) -> None:
    (claim,) = await allocated(driver(tmp_path / "a"), {}, onNodeUnavailable="Recreate")
    await reinstalled(tmp_path / "a").prepare(claim)
    assert data(tmp_path / "a") == [claim.handle.workspace]


async def test_a_directory_that_is_there_is_used_whatever_the_disk_says(tmp_path: Path) -> None:
    """It was copied to a new disk, or the file is damaged: it is drawn anew."""
    (claim,) = await allocated(driver(tmp_path), {})
    await driver(tmp_path).prepare(claim)
    before = driver(tmp_path).devices()[0].attributes[IDENTITY]
    (tmp_path / "identity").write_bytes(b"\xff")
    assert driver(tmp_path).devices()[0].attributes[IDENTITY] != before
    await driver(tmp_path).prepare(claim)


def test_both_parts_call_it_the_same() -> None:
    assert workspaces.IDENTITY == IDENTITY
