"""Workspaces' directories are removed by way of the trash: after failures and crashes, and beside other work."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver, trash

from parley_kubelet.driver import trees


@pytest.mark.parametrize("retain", [0, 1])
async def test_no_power_cut_brings_back_what_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retain: int
) -> None:
    mine, flush = claim("a", retain=retain), os.fsync
    await driver(tmp_path).prepare(mine)
    flushed = dict[Path, list[str]]()

    def noted(descriptor: int) -> None:
        flush(descriptor)
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed[folder] = [path.name for path in folder.iterdir()]

    monkeypatch.setattr(os, "fsync", noted)
    await driver(tmp_path).remove_data(mine)
    assert flushed == {tmp_path / "data": []}


async def test_a_removal_that_failed_has_not_removed_it_also_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver(tmp_path).prepare(claim("a"))
    (tmp_path / "data" / "id-of-a" / "file").touch()

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        for _ in range(2):
            with pytest.raises(PermissionError):
                await driver(tmp_path).remove_data(claim("a"))
        await driver(tmp_path).remove_data(claim("b"))
    assert len(trash(tmp_path)) == 1
    await driver(tmp_path).remove_data(claim("a"))
    assert trash(tmp_path) == []


async def test_removals_leave_the_threads_that_record_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, node = threading.Event(), driver(tmp_path)
    monkeypatch.setattr(trees, "remove", lambda *_: go_on.wait())
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    for name in ("a", "b", "c", "d"):
        await node.prepare(claim(name))
    removals = [asyncio.create_task(node.remove_data(claim(name))) for name in ("a", "b", "c", "d")]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "recorded") == "recorded"
        assert not any(removal.done() for removal in removals)
    finally:
        go_on.set()
        await asyncio.gather(*removals)


async def test_a_namespace_whose_removals_take_long_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, node, remove = threading.Event(), driver(tmp_path), trees.remove

    def slow(parent: int, name: str, seconds: float) -> None:
        if name.startswith("id-of-slow"):
            go_on.wait()
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", slow)
    mine, others = [claim(f"slow{number}") for number in range(4)], replace(claim("a"), namespace="other")
    for one in (*mine, others):
        await node.prepare(one)
    removals = [asyncio.create_task(node.remove_data(one)) for one in mine]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            await node.remove_data(others)
        assert not any(removal.done() for removal in removals)
    finally:
        go_on.set()
        await asyncio.gather(*removals)
    assert (data(tmp_path), trash(tmp_path)) == ([], [])


def test_what_comes_to_the_trash_waits_for_one_that_takes_long_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, removed, remove = driver(tmp_path), list[tuple[str, bool]](), trees.remove
    folder = tmp_path / "trash"
    for name in ("slow.1", "slow.2", "slow.3"):
        (folder / name).mkdir(parents=True)

    def slow(parent: int, name: str, seconds: float) -> None:
        removed.append((name, is_long := seconds > 10))
        if is_long:
            (folder / f"after.{name}").mkdir()
        if name.startswith("slow"):
            raise TimeoutError(110, "still something in it")
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", slow)
    node.devices()
    node._sweeper.join()
    first, rest = removed[:3], removed[3:]
    assert sorted(first) == [("slow.1", False), ("slow.2", False), ("slow.3", False)]
    turns = [[(name, True), (f"after.{name}", False)] for name, _ in first]
    assert rest == [one for turn in turns for one in turn]


async def test_a_directory_that_is_being_made_is_not_emptied_as_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, other = trees.make, driver(tmp_path)

    def swept(*given: Any) -> None:
        make(*given)
        other.devices()
        other._sweeper.join()

    monkeypatch.setattr(trees, "make", swept)
    await driver(tmp_path).prepare(claim("a"))
    assert data(tmp_path) == ["id-of-a"]


async def test_what_cannot_be_removed_keeps_nothing_else_in_the_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, node = trees.remove, driver(tmp_path)
    for name in ("x.1", "y.1", "z.1"):
        (tmp_path / "trash" / name).mkdir(parents=True)

    def busy(parent: int, name: str, seconds: float) -> None:
        if name == "y.1":
            raise OSError(16, "DeviceName or resource busy")
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", busy)
    node.devices()
    node._sweeper.join()
    assert [path.name for path in trash(tmp_path)] == ["y.1"]


async def test_what_a_crash_left_in_the_trash_is_removed_by_the_next_process(tmp_path: Path) -> None:
    await driver(tmp_path).prepare(claim("a"))
    (tmp_path / "trash" / "half" / "sub").mkdir(parents=True)
    (tmp_path / "trash" / "half" / "file").touch()
    driver(tmp_path).devices()
    async with asyncio.timeout(60):
        while trash(tmp_path):  # noqa: ASYNC110 - a thread sets no event of ours
            await asyncio.sleep(0.01)
    assert data(tmp_path) == ["id-of-a"]
