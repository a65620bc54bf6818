"""The pod's control group is at its limit of processes, so that no thread can be started."""

import asyncio
import threading
from pathlib import Path

import pytest

from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint, checkpoint_thread


async def test_the_checkpoint_has_its_own_thread_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = SharedCheckpoint(Folder(tmp_path / "state"), "node", checkpoint_thread())

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    async with asyncio.timeout(60):
        assert await records.read() == {}
