"""A model of the pod garbage collector of kube-controller-manager: what it does for pods on nodes that are gone.

Such a pod's object stays as it was for 40 s or more. If the node is not back by then, it is Failed and deleted at
once, without a kubelet that has to agree. Source: pkg/controller/podgc/gc_controller.go of 1.37 (gcOrphaned).
"""

import asyncio

from parley.api.resources import NODES, PODS
from parley.control.objects.pod import is_terminal
from parley.kube.client import ApiError, Client
from parley.simulate.status_writes import patch_pod

LOOKS_EVERY = 20.0
QUARANTINE = 40.0
"""Seconds that a node has to be gone."""


class PodCollector:
    """Reads everything at each look."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._gone: dict[str, float] = {}
        """Since when nodes are gone that pods name."""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            await self._look()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        there = {node.metadata.name for node in (await self._client.list(NODES)).items}
        pods = [pod for pod in (await self._client.list(PODS)).items if pod.spec.node_name]
        missing = {pod.spec.node_name for pod in pods} - there
        self._gone = {node: self._gone.get(node, now) for node in missing}
        for pod in pods:
            if self._gone.get(pod.spec.node_name, now) + QUARANTINE > now:
                continue
            meta = pod.metadata
            try:
                if not is_terminal(pod):
                    await patch_pod(self._client, pod, {"phase": "Failed"})
                await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0)
            except ApiError:
                pass  # it is gone, or another one
