"""A model of all node plugins' receipts: what is not prepared on its node any more is said to be so.

As `parley_kubelet.claims.releases` does on one node, for every driver. What is prepared the simulated kubelets
say; publishing devices is left out.
"""

import asyncio

from parley.api.models import ResourceClaim
from parley.api.names import CLAIM_UID_ANNOTATION, RELEASING_FROM_ANNOTATION, RELEASING_LABEL
from parley.api.resources import CLAIMS
from parley.control.receipts import is_record, owing, prepared_uids
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.reflector import Reflector, Selection
from parley.simulate.kubelet import Kubelets

AGAIN = 3.0
"""Seconds after which claims that are still prepared are looked at again."""


class NodePlugins:
    """One for all nodes and drivers."""

    def __init__(self, client: Client, kubelets: Kubelets) -> None:
        self._client = client
        self._kubelets = kubelets
        self._asked = asyncio.Event()
        self._watch = Reflector(
            client,
            CLAIMS,
            Selection(label_selector=f"{RELEASING_LABEL}=true"),
            on_change=lambda _old, _new: self._asked.set(),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            while True:
                await self._news()
                for claim in list(self._watch.values()):
                    await self._answer(claim)

    async def _news(self) -> None:
        try:
            async with asyncio.timeout(AGAIN if len(self._watch) else None):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()

    async def _answer(self, claim: ResourceClaim) -> None:
        node, uids = owing(claim), prepared_uids(claim)
        if not node or not all(uids) or node in self._kubelets.stopped:
            return
        if any((node, uid) in self._kubelets.prepared for uid in uids):
            return
        meta, annotations = claim.metadata, {RELEASING_FROM_ANNOTATION: None, CLAIM_UID_ANNOTATION: None}
        marks = {"labels": {RELEASING_LABEL: None}, "annotations": annotations}
        version = meta.resource_version
        try:
            if is_record(claim):
                await self._client.delete(
                    CLAIMS, meta.name, meta.namespace, uid=meta.uid, resource_version=version
                )
            else:
                body = {"metadata": {"resourceVersion": version, **marks}}
                await self._client.patch(CLAIMS, meta.name, body, meta.namespace)
        except (Conflict, NotFound):
            pass  # changed or gone meanwhile; the change comes
