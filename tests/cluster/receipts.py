"""Nodes without kubelets say what a node plugin would: nothing is prepared here.

A controller that does not see how a pod ended (it lists anew after its watch was lost) asks the pod's node.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from tests.cluster.manifests import DRIVER

from parley.kube.client import Client
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.state.checkpoint import CheckpointEntry


class _Nothing:
    """A plugin's record of what is prepared."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def holds(self, _uid: str) -> bool:
        return False

    async def entries(self) -> Mapping[str, CheckpointEntry]:
        return {}


@asynccontextmanager
async def receipts_given(client: Client, nodes: Iterable[str]) -> AsyncGenerator[None, None]:
    """By these nodes within the block."""
    plugins = {DRIVER: cast(Preparation, _Nothing())}
    giving = [asyncio.create_task(Receipts(client, node, plugins).run()) for node in nodes]
    try:
        yield
    finally:
        for task in giving:
            task.cancel()
        ended = await asyncio.gather(*giving, return_exceptions=True)
    assert all(isinstance(ending, asyncio.CancelledError) for ending in ended), ended
