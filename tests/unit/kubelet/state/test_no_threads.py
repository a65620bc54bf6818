"""The disk's thread can't be started, as at the limit of processes of the pod's control group."""

import asyncio
from pathlib import Path

import pytest

from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint


async def test_a_reader_gets_the_error_and_the_next_one_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = SharedCheckpoint(Folder(tmp_path / "state"), "node")

    async def to_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "to_thread", to_thread)
        with pytest.raises(OSError, match="can't start new thread"):
            async with asyncio.timeout(2):
                await records.read()
    async with asyncio.timeout(2):
        assert await records.read() == {}
