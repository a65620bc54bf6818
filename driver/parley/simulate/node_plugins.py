"""A model of all node plugins' receipts: they confirm what is no longer prepared on its node.

As `parley_kubelet.claims.releases` does on one node, for every driver. The simulated kubelets know what
is prepared; publishing devices is left out.
"""

import asyncio

from parley.api.models import ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.informer import Informer
from parley.simulate.kubelet import Kubelets

AGAIN = 3.0
"""Seconds after which claims that are still prepared are looked at again."""


class NodePlugins:
    """One for all nodes and drivers."""

    def __init__(self, client: Client, kubelets: Kubelets) -> None:
        self._client = client
        self._kubelets = kubelets
        self._asked = asyncio.Event()
        self._watch = Informer(client, CLAIM_RELEASES, on_change=lambda _old, _new: self._asked.set())

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            while True:
                await self._news()
                for release in list(self._watch.values()):
                    await self._answer(release)

    async def _news(self) -> None:
        try:
            async with asyncio.timeout(AGAIN if len(self._watch) else None):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()

    async def _answer(self, release: ClaimRelease) -> None:
        node, meta = release.spec.node_name, release.metadata
        if not release.status.allocation_cleared or node in self._kubelets.stopped:
            return
        if (node, release.spec.claim.uid) in self._kubelets.prepared:
            return
        try:
            await self._client.delete(CLAIM_RELEASES, meta.name, uid=meta.uid)
        except (Conflict, NotFound):
            pass  # gone, or recreated; the change comes
