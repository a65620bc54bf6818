"""Hundreds of claims at once: what a namespace may ask of one node."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.claims.test_preparation import Node, allocated

from parley.kube.client import Client
from parley_kubelet.hooks import HeldClaim
from parley_kubelet.state.checkpoint import CheckpointEntry


@contextmanager
def open_files(more: int) -> Iterator[None]:
    """So many more files than now may be open within the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_hundreds_of_claims_at_once_need_few_open_files(client: Client, folder: Path) -> None:
    """1,024 are all that a process may have where the container runtime sets nothing."""
    node = Node(client, folder)
    plugin = node.plugin(devices=[{"name": "gpu-0", "model": "a100", "slices": 200}])
    claims = [await allocated(node, f"c{number}", "gpu-0", shared=True) for number in range(200)]
    with open_files(50):
        await asyncio.gather(*map(plugin.prepare, claims))
        await asyncio.gather(*map(plugin.unprepare, claims))
    assert await plugin.entries() == {}


async def test_what_is_held_is_read_for_the_hooks_while_other_calls_go_on(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few seconds, of thousands of claims: the kubelet's calls would wait for it."""
    node = Node(client, folder)
    plugin = node.plugin(devices=[{"name": "gpu-0", "model": "a100", "slices": 250}])
    claims = [await allocated(node, f"c{number}", "gpu-0", shared=True) for number in range(250)]
    await asyncio.gather(*map(plugin.prepare, claims))
    converted, convert = list[str](), plugin._typed.held

    def counted(entry: CheckpointEntry) -> HeldClaim[Any]:
        converted.append(entry.uid)
        return convert(entry)

    monkeypatch.setattr(plugin._typed, "held", counted)
    reading, turns = asyncio.create_task(plugin.held()), list[int]()
    while not reading.done():
        before = len(converted)
        await asyncio.sleep(0)
        turns.append(len(converted) - before)
    assert len(await reading) == sum(turns) == 250
    assert max(turns) < 150
