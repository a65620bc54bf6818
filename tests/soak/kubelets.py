"""Kubelets whose node plugins prepare no devices of other nodes, as the device driver's node part does not, that
report when a pod's devices are unprepared, and whose pods may take a while to end."""

import asyncio
from collections.abc import Callable

from tests.soak.priorities import ENDS_AFTER

from parley.api.builtin import Pod
from parley.control.objects.mirror import allocated
from parley.control.objects.pod import done
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.simulate.kubelet import Kubelets

INSTANT = 1e-6


class DeviceKubelets(Kubelets):
    """A pod starts where its devices are. `unprepared` is called with the UIDs of pods that have none any more."""

    def __init__(
        self, client: Client, clock: Clock, unprepared: Callable[[str], None], unprepare_seconds: float
    ) -> None:
        super().__init__(client, clock, unprepare_seconds=unprepare_seconds)
        self._unprepared = unprepared
        self._exits: dict[str, float] = {}
        """When the containers of pods that are being deleted end, by the pod's UID."""

    def _unprepare(self, pod: str) -> None:
        super()._unprepare(pod)
        self._unprepared(pod)

    def _usable(self, pod: Pod, name: str) -> bool:
        claim = self._claims.get(pod.metadata.namespace, name)
        if claim is not None and allocated(claim, TokensDriver.name) is not None:
            return super()._usable(pod, name)
        found = allocated(claim, DeviceDriver.name) if claim is not None else None
        there = found is not None and all(device.pool == pod.spec.node_name for device in found.devices)
        return there and super()._usable(pod, name)

    async def _remove(self, pod: Pod) -> None:
        meta, now = pod.metadata, asyncio.get_running_loop().time()
        takes = 0.0 if done(pod) else float(meta.annotations.get(ENDS_AFTER, 0))
        left = self._exits.setdefault(meta.uid, now + takes) - now
        if left > INSTANT and not done(pod):
            self._queue.add_after((meta.namespace, meta.name), left)
        else:
            del self._exits[meta.uid]
            await super()._remove(pod)
