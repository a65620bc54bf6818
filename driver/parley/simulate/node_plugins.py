"""A model of all node plugins: they give receipts for claims that are no longer prepared on their nodes.

As `parley_kubelet.claims.releases` on one node, for all drivers. The simulated kubelets know which claims are
prepared. Left out: publishing devices.
"""

import asyncio

from parley.api.models import ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.informer import Informer
from parley.simulate.kubelet import Kubelets

RECHECK = 3.0
"""Seconds between two checks of claims that are still prepared."""


class NodePlugins:
    """The node plugins of all nodes and drivers."""

    def __init__(self, client: Client, kubelets: Kubelets) -> None:
        self._client = client
        self._kubelets = kubelets
        self._changed = asyncio.Event()
        self._watch = Informer(client, CLAIM_RELEASES, on_change=lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            while True:
                await self._wait_for_change()
                for release in list(self._watch.values()):
                    await self._give_receipt(release)

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(RECHECK if len(self._watch) else None):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _give_receipt(self, release: ClaimRelease) -> None:
        node, meta = release.spec.node_name, release.metadata
        if not release.status.allocation_cleared or node in self._kubelets.stopped:
            return
        if (node, release.spec.claim.uid) in self._kubelets.prepared:
            return
        try:
            await self._client.delete(CLAIM_RELEASES, meta.name, uid=meta.uid)
        except (Conflict, NotFound):
            pass  # deleted or recreated: an event follows
