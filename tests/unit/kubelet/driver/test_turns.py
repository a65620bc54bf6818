"""Namespaces take turns at a node's disk: none waits for all that another has to be done there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver

from parley_kubelet.driver import images, loops
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import NodeClaim
from parley_kubelet.testing import until

MANY = 12


def of_two(**more: Any) -> tuple[list[NodeClaim[Any]], NodeClaim[Any]]:
    """Many claims of the namespace `team`, and one of another."""
    return [claim(f"c{number}", **more) for number in range(MANY)], replace(claim("a", **more), namespace="other")


@asynccontextmanager
async def under_way(calls: list[Coroutine[Any, Any, Any]], go_on: threading.Event) -> AsyncIterator[None]:
    """The calls go on until the end of the block, and end then."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        async with asyncio.timeout(20):
            yield
        assert not any(task.done() for task in tasks)
    finally:
        go_on.set()
        await asyncio.gather(*tasks)


async def test_a_namespace_with_many_file_systems_to_make_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(folder: Path, *_: Any) -> None:
        if folder.name != "id-of-a":
            go_on.wait()

    monkeypatch.setattr(images, "make", slow)
    monkeypatch.setattr(images, "lacking", str)
    monkeypatch.setattr(loops, "attach", lambda _file, _label: Path("/dev/loop0"))
    node, (mine, other) = driver(tmp_path), of_two(enforce="Image")
    async with under_way([node.prepare(one) for one in mine], go_on):
        await asyncio.sleep(0)
        await node.prepare(other)
        assert data(tmp_path) == ["id-of-a"]
    assert len(data(tmp_path)) == MANY + 1


async def test_a_namespace_whose_removals_wait_for_the_disk_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, flush, waiting = threading.Event(), WorkspaceNode._flush_data, list[WorkspaceNode]()

    def slow(node: WorkspaceNode) -> None:
        if "id-of-a" in data(tmp_path):
            waiting.append(node)
            go_on.wait()
        flush(node)

    node, (mine, other) = driver(tmp_path), of_two()
    for one in (*mine, other):
        await node.prepare(one)
    monkeypatch.setattr(WorkspaceNode, "_flush_data", slow)
    async with under_way([node.remove_data(one) for one in mine], go_on):
        await until(lambda: bool(waiting) and data(tmp_path) == ["id-of-a"])
        await node.remove_data(other)
    assert data(tmp_path) == []
