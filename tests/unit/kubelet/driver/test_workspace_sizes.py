"""Sizes of workspaces: what the node part publishes of its disk, and notices of claims that use more."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.workspace_folders import a_view, claim, driver

from parley_kubelet.driver import measuring
from parley_kubelet.driver.usage import DiskUsage
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import HeldClaim, NodeClaim


async def notices(node: WorkspaceNode, *held: NodeClaim[Any]) -> dict[str, tuple[str, str]]:
    """Reason and message of the node part's notices by claim, once everything is measured."""
    await node.notices([HeldClaim(one, None) for one in held])
    node._usage.wait(10)
    found = await node.notices([HeldClaim(one, None) for one in held])
    return {notice.claim.name: (notice.reason, notice.message) for notice in found}


@pytest.mark.parametrize("more", [{}, {"generated": True}, {"retain": 1}])
async def test_nothing_is_told_or_remembered_of_one_that_was_removed(tmp_path: Path, more: dict[str, Any]) -> None:
    node, large = driver(tmp_path), claim("large", bytes=1024, **more)
    await node.prepare(large)
    (tmp_path / "data" / "id-of-large" / "file").write_bytes(bytes(100_000))
    assert set(await notices(node, large)) == {"large"}
    assert set(await notices(node)) == {"large"}, "it is kept, and its last user is gone"
    await node.unprepare(HeldClaim(large, {}))
    await node.remove_data(large)
    assert await notices(node) == {}
    assert (node._usage.names(), node._measured) == (frozenset(), {})


async def test_what_is_measured_is_listed_once_for_all_of_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, names, listed = driver(tmp_path), DiskUsage.names, list[int]()

    def counted(usage: DiskUsage) -> frozenset[str]:
        found = names(usage)
        listed.append(len(found))
        return found

    monkeypatch.setattr(DiskUsage, "names", counted)
    await notices(node, *(claim(f"c{number}") for number in range(10)))
    assert listed == [10, 10]


async def test_who_uses_more_than_its_size_is_told_with_both_figures(tmp_path: Path) -> None:
    node, size = driver(tmp_path), 2 * 1024**2
    large, small = claim("large", bytes=size), claim("small", bytes=size)
    for one in (large, small):
        await node.prepare(one)
        (tmp_path / "data" / one.handle.workspace / "file").write_bytes(bytes(size - 16 * 1024))
    assert await notices(driver(tmp_path), large, small) == {}
    (tmp_path / "data" / "id-of-large" / "more").write_bytes(bytes(size))
    told = {
        "large": (
            "OverSize",
            "it uses 3.98Mi of the disk of node n1, more than its size of 2Mi, and takes that from others: remove "
            "files, or recreate the claim with the size that it needs",
        )
    }
    other = driver(tmp_path)
    assert await notices(other, large, small, a_view("view", "large", bytes=size)) == told
    assert await notices(other, small) == told, "it is kept, and its last user is gone"
    await other.remove_data(large)
    assert await notices(other, large, small) == {}


async def test_who_cannot_be_measured_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "DEEPEST", 1)
    node, deep = driver(tmp_path), claim("deep", bytes=1024**3)
    await node.prepare(deep)
    (tmp_path / "data" / "id-of-deep" / "a" / "b" / "c").mkdir(parents=True)
    ((reason, message),) = (await notices(node, deep)).values()
    assert reason == "SizeUnknown"
    assert "at least of the disk of node n1, of its size of 1Gi; directories more than" in message


def test_it_publishes_what_the_settings_say_or_most_of_the_disk(tmp_path: Path) -> None:
    (offer,) = driver(tmp_path, size="2Gi").devices()
    assert offer.capacity == {"size": str(2 * 1024**3)}
    (offer,) = driver(tmp_path).devices()
    disk = os.statvfs(tmp_path)
    assert 0 < int(offer.capacity["size"]) < disk.f_blocks * disk.f_frsize
