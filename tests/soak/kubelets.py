"""Kubelets whose node plugins prepare no devices of other nodes, as the device driver's node part does not, that
report when a pod's devices are unprepared, and whose pods may take a while to end.

As a real one they ask nobody about a claim that is prepared already: the next pod gets what the first one got,
whatever the claim has by now (pkg/kubelet/cm/dra/manager.go, 1.37)."""

import asyncio
from collections.abc import Callable, Sequence

from tests.soak.priorities import ENDS_AFTER

from parley.api.builtin import BuiltinClaim, Pod
from parley.control.objects.mirror import allocated
from parley.control.objects.pod import done
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.simulate.kubelet import Kubelets
from parley.simulate.pod_claims import claim_names

INSTANT = 1e-6


class DeviceKubelets(Kubelets):
    """A pod starts where its devices are. `unprepared` is called with the UIDs of pods that have none any more,
    `fault` when a pod gets other devices than its claim has."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        unprepared: Callable[[str], None],
        fault: Callable[[str, str], None],
        unprepare_seconds: float,
    ) -> None:
        super().__init__(client, clock, unprepare_seconds=unprepare_seconds)
        self._unprepared = unprepared
        self._fault = fault
        self._given: dict[tuple[str, str], Sequence[object]] = {}
        """Devices by node and UID of the claim for which they were prepared."""
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

    async def _start(self, pod: Pod) -> None:
        for name in claim_names(pod):
            if (claim := self._claims.get(pod.metadata.namespace, name)) is not None:
                self._give(pod, claim)
        await super()._start(pod)

    def _give(self, pod: Pod, claim: BuiltinClaim) -> None:
        found = allocated(claim, DeviceDriver.name)
        devices = tuple((device.pool, device.device) for device in found.devices) if found is not None else ()
        key = pod.spec.node_name, claim.metadata.uid
        given = self._given.get(key) if key in self.prepared else None
        if given is not None and given != devices:
            self._fault(
                "stale devices", f"pod {pod.metadata.name} gets {given}, {claim.metadata.name} has {devices}"
            )
        self._given[key] = devices

    async def _remove(self, pod: Pod) -> None:
        meta, now = pod.metadata, asyncio.get_running_loop().time()
        takes = 0.0 if done(pod) else float(meta.annotations.get(ENDS_AFTER, 0))
        left = self._exits.setdefault(meta.uid, now + takes) - now
        if left > INSTANT and not done(pod):
            self._queue.add_after((meta.namespace, meta.name), left)
        else:
            del self._exits[meta.uid]
            await super()._remove(pod)
